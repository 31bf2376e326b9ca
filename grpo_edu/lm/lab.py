"""The lab: sort digits, judge yourself, then trail off.

A task in which a loss can lengthen wrong answers, or cannot.

::

    prompt 5283=   ->   2358#!......<eos>     or, after a slip,     2351#?,,,,<eos>
                        sorted digits, #, a mark (! "right", ? "wrong"), filler: dots or commas

A question of level l has l + 1 different digits. The reward is 1 where the digits before # are the
sorted list, whatever follows. The hand slips: with a probability that rises with the level, the
environment replaces the last digit by a random one. Slips cannot be unlearnt, so wrong answers
persist; and the policy sees its slip before it decides how long to go on. A slipped digit is no
choice of the policy's: no gradient flows through it. It counts in the length of its completion like
any token. (Leave it out of the mask, and the 1/|o| of slipped completions is a little larger than
that of the others: under GRPO all answers then drift to greater length.)

Variants: ``after`` as above; ``before``, the control: the filler comes first, when right or wrong
is not settled; ``rising``: the warm start itself errs, learnably, and the hand slips in 30 % of all
answers, so that the reward has somewhere to rise.

It is a controlled lab, built so that an effect of the loss can be seen in minutes. It says nothing
about the size of the effect in large models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ..checks import checked, one_of
from .generate import Environment
from .tasks import Problem, Task

CHARACTERS = "0123456789+=#.,~*!?"
SPECIAL = ("<pad>", "<eos>", "<bos>")
PAD, END, START = range(3)
DIGITS = range(3, 13)
LEVELS = (1, 2, 3, 4, 5)
SLIP: dict[int, float] = {1: 0.1, 2: 0.3, 3: 0.5, 4: 0.7, 5: 0.9}  # by level
ERROR = {1: 0.1, 2: 0.3, 3: 0.5, 4: 0.7, 5: 0.85}  # of the warm start of ``rising``, by level
CONSTANT_SLIP: dict[int, float] = dict.fromkeys(LEVELS, 0.3)
VARIANTS = ("after", "before", "rising")
WARM_STARTS = (0, 1)
MAX_NEW_TOKENS = 48


@dataclass(frozen=True)
class Teaching:
    """How the warm start is made.

    Args:
        steps, batch, learning_rate: of supervised learning with AdamW, linear decay.
        filler: mean length of the filler, geometric; 40 at most.
        honesty: how often the mark of a teaching example is true.
    """

    steps: int = 1200
    batch: int = 64
    learning_rate: float = 3e-3
    filler: float = 8.0
    honesty: float = 0.95


def tokenizer() -> Any:
    """22 tokens: one per character, padding, end, start.

    A ``PreTrainedTokenizerFast`` with padding on the left.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {text: i for i, text in enumerate((*SPECIAL, *CHARACTERS))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[PAD]))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    names = {"pad_token": SPECIAL[PAD], "eos_token": SPECIAL[END], "bos_token": SPECIAL[START]}
    return PreTrainedTokenizerFast(tokenizer_object=inner, padding_side="left", **names)


def model(seed: int = 0) -> Any:
    """A Llama of 161,600 parameters (3 layers of width 64, 4 heads) with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(SPECIAL) + len(CHARACTERS),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=START,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # transformers initialises from the global generator
        return LlamaForCausalLM(config).eval()


def slips(variant: str) -> dict[int, float]:
    """Probability of a slip by level."""
    one_of("variant", variant, VARIANTS)
    return CONSTANT_SLIP if variant == "rising" else SLIP


@checked
def task(variant: str = "after") -> Task:
    """The lab task; levels take turns, digits are drawn."""

    def environment(questions: Sequence[Problem]) -> Environment:
        return slip(questions, slips(variant))

    slips(variant)
    return Task(f"lab({variant})", questions, reward, MAX_NEW_TOKENS, environment=environment)


def questions(count: int, step: int, generator: torch.Generator) -> list[Problem]:
    """``count`` questions; question i of a step has level 1 + (i + step) mod 5."""
    return [question(LEVELS[(i + step) % len(LEVELS)], generator) for i in range(count)]


def question(level: int, generator: torch.Generator) -> Problem:
    """``level`` + 1 different digits in random order, and the sorted list."""
    digits = torch.randperm(10, generator=generator)[: level + 1].tolist()
    return Problem("".join(map(str, digits)) + "=", "".join(map(str, sorted(digits))), level)


@checked
def reward(completion: str, answer: str) -> float:
    """1.0 if what stands before #, dots aside, is the sorted list.

    ``reward("..2358#?,,", "2358") == 1.0``
    """
    digits, mark, _ = completion.partition("#")
    return float(bool(mark) and digits.replace(".", "") == answer)


def slip(questions: Sequence[Problem], probability: dict[int, float]) -> Environment:
    """The trembling hand: a random digit in place of the last one of the list, when it is drawn."""
    places = torch.tensor([len(q.answer) for q in questions])
    chance = torch.tensor([probability[q.level] for q in questions])

    def environment(
        ids: Tensor, drawn: Tensor, rows: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        number = torch.cat([_is_digit(ids), _is_digit(drawn)[:, None]], dim=1).sum(dim=1)
        due = _is_digit(drawn) & (number == places.to(rows.device)[rows])
        uniform = torch.rand(drawn.shape, generator=generator, device=drawn.device)
        hit = due & (uniform < chance.to(rows.device)[rows])
        other = torch.randint(
            DIGITS.start, DIGITS.stop, drawn.shape, generator=generator, device=drawn.device
        )
        return torch.where(hit, other, drawn), ~hit

    return environment


def _is_digit(ids: Tensor) -> Tensor:
    return (ids >= DIGITS.start) & (ids < DIGITS.stop)


# --- warm start -----------------------------------------------------------------------------------


def warm_start_path(variant: str, number: int) -> Path:
    """Where the weights of a shipped warm start lie."""
    return Path(str(resources.files("grpo_edu"))) / "data" / f"lab_{variant}_{number}.safetensors"


@checked
def warm_start(variant: str = "after", number: int = 0) -> tuple[Any, Any]:
    """A shipped warm start and its tokenizer. Weights are stored in float16 and loaded in float32.

    Args:
        variant: of the task.
        number: 0 or 1; independent initialisations and teaching data.

    Raises:
        ValueError: no such variant or number.
    """
    from safetensors.torch import load_file

    slips(variant)
    if number not in WARM_STARTS:
        raise ValueError(
            f"number is {number}: expected one of {WARM_STARTS}, the shipped warm starts."
        )
    net = model(number)
    weights = {
        name: value.float() for name, value in load_file(warm_start_path(variant, number)).items()
    }
    net.load_state_dict(weights, strict=False)  # the output projection is tied to the embedding
    return net, tokenizer()


def save_warm_start(net: Any, path: Path) -> None:
    """The weights in float16, the tied output projection left out."""
    from safetensors.torch import save_file

    from ..files import replacing

    weights = {
        k: v.half().contiguous() for k, v in net.state_dict().items() if k != "lm_head.weight"
    }
    with replacing(path) as target:
        save_file(weights, target)


def teach(variant: str, seed: int, teaching: Teaching | None = None, progress: bool = False) -> Any:
    """Supervised warm start: examples of the format, with slips, honest marks and filler that
    ignores right and wrong.
    """
    teaching = teaching or Teaching()
    net = model(seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=teaching.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    for step in tqdm(
        range(teaching.steps),
        desc=f"warm start {variant} {seed}",
        disable=None if progress else True,
    ):
        ids, labels = _examples(variant, teaching, generator)
        warm = min(1.0, (step + 1) / 50)
        left = max(0.05, 1 - step / teaching.steps)
        optimizer.param_groups[0]["lr"] = teaching.learning_rate * warm * left
        logits = net(input_ids=ids).logits[:, :-1]
        torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
        ).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return net


def _examples(
    variant: str, teaching: Teaching, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Examples ``[B, L]`` and their labels: -100 on prompts, padding and slipped digits."""
    number = {text: i for i, text in enumerate((*SPECIAL, *CHARACTERS))}
    rows = []
    for level in torch.randint(1, len(LEVELS) + 1, (teaching.batch,), generator=generator).tolist():
        asked = question(level, generator)
        text, slipped = example(asked, variant, teaching, generator)
        ids = [number[c] for c in asked.prompt + text] + [END]
        labels = [-100] * len(asked.prompt) + ids[len(asked.prompt) :]
        if slipped is not None:
            labels[len(asked.prompt) + slipped] = -100
        rows.append((torch.tensor(ids), torch.tensor(labels)))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad([r[0] for r in rows], True, PAD), pad([r[1] for r in rows], True, -100)


def example(
    asked: Problem, variant: str, teaching: Teaching, generator: torch.Generator
) -> tuple[str, int | None]:
    """One teaching completion, and the place of its slipped digit; None where nothing slipped."""
    uniform = torch.rand(5, generator=generator).tolist()
    digits = asked.answer
    slipped = uniform[0] < slips(variant)[asked.level]
    if slipped or (variant == "rising" and uniform[1] < ERROR[asked.level]):
        digits = digits[:-1] + str(int(10 * uniform[2]))
    length = min(
        40, int(math.log(1 - uniform[3]) / math.log(teaching.filler / (1 + teaching.filler)))
    )
    place = len(digits) - 1 if slipped else None
    if variant == "before":
        return "." * length + digits + "#", None if place is None else length + place
    claims_right = (digits == asked.answer) == (uniform[4] < teaching.honesty)
    mark, filler = ("!", ".") if claims_right else ("?", ",")
    return digits + "#" + mark + length * filler, place
