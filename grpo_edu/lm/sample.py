"""Sampling completions with the exact log-probability of every token, and writing them, scored, as JSON lines."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from grpo_edu.files import read_text, replacing
from grpo_edu.lm.checkers import CHECKERS, Checker
from grpo_edu.lm.generate import Completions, Stopped, generate
from grpo_edu.lm.models import load


@dataclass(frozen=True)
class Prompt:
    """One line of a prompts file: what is asked, the answer that the checker gets, the name of its group."""

    prompt: str
    answer: str
    group_id: int | str


@torch.no_grad()
def sample(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    generator: torch.Generator,
    temperature: float = 1.0,
    stop: Sequence[str] = (),
    chat: bool = True,
) -> Completions:
    r"""One completion per prompt, drawn from the model as it is: no top-k, no top-p, no repetition penalty.

    .. math:: o_t \sim \mathrm{softmax}(z_t / \tau), \qquad \mathrm{logp}_t = \log \mathrm{softmax}(z_t / \tau)_{o_t}

    The softmax is taken in float32 over the raw logits z, under the temperature τ that is sampled with: the log-prob
    belongs to the sampler. For τ other than 1 it is not the log-prob of the untempered model.

    Args:
        model: causal language model with a key-value cache, in eval mode (``load``).
        tokenizer: of the model. Its end token and those of ``model.generation_config`` end a completion.
        prompts: N texts; repeat a prompt to get several completions of it.
        max_new_tokens: limit T of the completion length, end token included.
        generator: the only source of randomness, on the model's device.
        temperature: τ, positive.
        stop: texts that end a completion; the token that completes one is the last and counts as an end.
        chat: wrap each prompt as one user turn of the tokenizer's chat template.

    Raises:
        ValueError: a limit or temperature that is not positive, no prompts, prompts too long for the model.
    """
    _check_sampling(max_new_tokens, temperature, stop)
    new, attention = encode(tokenizer, prompts, chat=chat, device=model.device)
    check_room(model, new.shape[1], max_new_tokens)
    return generate(
        model,
        new,
        attention,
        max_new_tokens=max_new_tokens,
        ends=end_ids(model, tokenizer),
        generator=generator,
        temperature=temperature,
        stopped=stop_texts(tokenizer, stop),
    )


def encode(
    tokenizer: Any, prompts: Sequence[str], *, chat: bool, device: Any = None
) -> tuple[Tensor, Tensor]:
    """Token numbers and attention mask of the prompts, both ``[N, P]``, padded on the left.

    Args:
        tokenizer: with a padding token; ``load`` sees to it.
        prompts: N texts.
        chat: wrap each as one user turn of the chat template, with the template's own system prompt if it has one.
        device: where the tensors go.

    Raises:
        ValueError: no prompts, an empty one, or ``chat`` without a chat template.
    """
    if chat and not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "chat is True but the tokenizer has no chat template: use chat=False, with the full text as prompt."
        )
    if chat:
        turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
        prompts = [
            tokenizer.apply_chat_template(t, add_generation_prompt=True, tokenize=False)
            for t in turns
        ]
    if not prompts or not all(prompts):
        raise ValueError(f"prompts is {list(prompts)}: expected at least one text, and none empty.")
    options = {
        "add_special_tokens": not chat,
        "padding": True,
        "padding_side": "left",
        "return_tensors": "pt",
    }
    batch = tokenizer(list(prompts), **options)
    return batch["input_ids"].to(device), batch["attention_mask"].to(device)


def end_ids(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a completion: the tokenizer's, and those of the generation config, which may list several."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    several = configured if isinstance(configured, list) else [configured]
    return sorted({int(i) for i in (*several, tokenizer.eos_token_id) if i is not None})


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text that each token adds; joined, they are the decoded text of the whole.

    A character split over several tokens stands at the token that completes it, and the tokens before it have "": the
    bytes themselves are kept in the token numbers. Bytes that never become a character stand as U+FFFD.
    """
    texts, done = [], ""
    for end in range(1, len(ids) + 1):
        text = _decode(tokenizer, ids[:end])
        if end < len(ids):
            text = text.rstrip("\N{REPLACEMENT CHARACTER}")
        texts.append(text[len(done) :])
        done = max(done, text, key=len)
    return texts


def sample_groups(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    checker: Checker,
    *,
    samples_per_prompt: int,
    seed: int,
    start: int = 0,
    **sampling: Any,
) -> Iterator[list[dict[str, Any]]]:
    """The scored completions of one prompt after the other, as rows of ``sample_file``.

    Each prompt has its own generator, seeded by ``seed`` and its place: what is drawn does not depend on ``start``.

    Args:
        model: causal language model.
        tokenizer: of the model.
        prompts: what to ask.
        checker: (completion, answer) -> reward.
        samples_per_prompt: completions per prompt, G.
        seed: whole number.
        start: place of the first prompt to sample.
        sampling: ``max_new_tokens``, ``temperature``, ``stop``, ``chat`` of ``sample``.
    """
    for place in range(start, len(prompts)):
        generator = torch.Generator(device=model.device).manual_seed(seed * 1_000_003 + place)
        asked = [prompts[place].prompt] * samples_per_prompt
        drawn = sample(model, tokenizer, asked, generator=generator, **sampling)
        ends = end_ids(model, tokenizer)
        yield [
            _row(tokenizer, prompts[place], drawn, i, checker, ends, sampling)
            for i in range(samples_per_prompt)
        ]


def sample_file(
    model: str | tuple[Any, Any],
    prompts: str | Path,
    out: str | Path,
    *,
    samples_per_prompt: int = 8,
    max_new_tokens: int = 64,
    temperature: float = 1.0,
    seed: int = 0,
    checker: str = "last_number",
    stop: Sequence[str] = (),
    chat: bool = True,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Sample completions of every prompt of a file, score them, and write one JSON line per completion.

    Finished prompts are kept in ``out`` + ".partial", also after Ctrl-C. The same call goes on from there, and gives
    the same file as a run that was never interrupted.

    Columns: ``group_id, sample_id, prompt, answer, completion, tokens, token_ids, logp, ref_logp, reward, truncated,
    max_new_tokens``. ``tokens`` joined is the completion, followed by the end token's own text where there is one
    (``token_texts`` says how characters of several tokens look). ``logp`` is float32 to its last digit.
    ``ref_logp`` equals it: the frozen model is the sampler.

    Args:
        model: what ``load`` takes, or a pair (model, tokenizer).
        prompts: JSON lines with ``prompt``, ``answer`` and, optional, ``group_id``.
        out: the file to write.
        samples_per_prompt: completions per prompt, G.
        max_new_tokens: limit of the completion length, end token included.
        temperature: positive; 1 samples the model as it is.
        seed: whole number.
        checker: a name in ``CHECKERS``.
        stop: texts that end a completion.
        chat: wrap each prompt in the tokenizer's chat template.
        overwrite: replace ``out`` if it exists.
        progress: draw a progress bar, if the output is a terminal.

    Returns:
        The path of the written file.

    Raises:
        ValueError: an argument, a line of the prompts file, or a partial file that does not fit; says which and why.
        FileExistsError: ``out`` exists and ``overwrite`` is False.
        FileNotFoundError: there is no prompts file.
    """
    sampling = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "stop": list(stop),
        "chat": chat,
    }
    _check_sampling(max_new_tokens, temperature, stop)
    _check_run(samples_per_prompt, seed, checker, Path(out), overwrite)
    asked = read_prompts(prompts, CHECKERS[checker])
    name = model if isinstance(model, str) else model[0].name_or_path
    digest = hashlib.sha256(Path(prompts).read_bytes()).hexdigest()
    run = {"samples_per_prompt": samples_per_prompt, "seed": seed, **sampling}
    partial = Path(f"{out}.partial")
    rows = _resume(partial, {"model": name, "prompts_sha256": digest, "checker": checker, **run})
    net, tokenizer = load(model) if isinstance(model, str) else model
    start = len(rows) // samples_per_prompt
    groups = sample_groups(net, tokenizer, asked, CHECKERS[checker], start=start, **run)
    with tqdm(
        groups, initial=start, total=len(asked), unit="prompt", disable=None if progress else True
    ) as bar:
        rows += _append(partial, bar, f"{len(asked)} prompts")
    write_lines(Path(out), rows)
    partial.unlink()
    return Path(out)


def read_prompts(path: str | Path, checker: Checker | None = None) -> list[Prompt]:
    """The prompts of a file of JSON lines, each an object with ``prompt``, ``answer`` and, optional, ``group_id``.

    Args:
        path: the file, UTF-8. ``group_id`` is the line's place among the prompts, from 0, where it is not given.
        checker: if given, it must be able to read every answer.

    Raises:
        ValueError: names the file, the line, what was found and what was expected.
        FileNotFoundError: there is no such file.
    """
    found: list[Prompt] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                found.append(_prompt(line, default=len(found)))
                if found[-1].group_id in {p.group_id for p in found[:-1]}:
                    raise ValueError(
                        f"group_id {found[-1].group_id!r} stands on an earlier line too: give each its own."
                    )
                if checker:
                    checker("", found[-1].answer)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    if not found:
        raise ValueError(
            f'{path} holds no prompt: expected lines such as {{"prompt": "What is 3 + 4?", "answer": "7"}}.'
        )
    return found


def stop_texts(tokenizer: Any, stop: Sequence[str]) -> Stopped | None:
    """Ends a completion as soon as it holds one of the texts; None where there are none."""

    def stopped(ids: Tensor, alive: Tensor) -> Tensor:
        ended = torch.zeros_like(alive)
        for i in alive.nonzero()[:, 0].tolist():
            text = _decode(tokenizer, ids[i].tolist())
            ended[i] = any(s in text for s in stop)
        return ended

    return stopped if stop else None


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Every token as it is written, special tokens and spaces too."""
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _row(
    tokenizer: Any,
    prompt: Prompt,
    drawn: Completions,
    i: int,
    checker: Checker,
    ends: list[int],
    sampling: dict[str, Any],
) -> dict[str, Any]:
    """Row i of a group, as it is written."""
    ids = drawn.ids[i][drawn.mask[i]].tolist()
    logp = [
        float(f"{value:.9g}") for value in drawn.logp[i][drawn.mask[i]].tolist()
    ]  # 9 digits are all of float32
    end = ids[-1:] if ids[-1] in ends else []
    tokens = token_texts(tokenizer, ids[: len(ids) - len(end)])
    completion = "".join(tokens)
    return {
        "group_id": prompt.group_id,
        "sample_id": i,
        "prompt": prompt.prompt,
        "answer": prompt.answer,
        "completion": completion,
        "reward": float(checker(completion, prompt.answer)),
        "truncated": bool(drawn.truncated[i]),
        "max_new_tokens": sampling["max_new_tokens"],
        "tokens": tokens + [_decode(tokenizer, [token]) for token in end],
        "token_ids": ids,
        "logp": logp,
        "ref_logp": logp,
    }


def _prompt(line: str, default: int) -> Prompt:
    """One line of a prompts file; the caller adds where it stands."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON ({error.msg} at column {error.colno}): expected one object per line."
        ) from error
    if not isinstance(found, dict):
        raise ValueError(
            f"found a {type(found).__name__}: expected an object with prompt and answer."
        )
    for key in ("prompt", "answer"):
        if key not in found:
            raise ValueError(
                f"no {key} among {sorted(found)}: expected prompt, answer and, optional, group_id."
            )
        if not isinstance(found[key], str) or not found[key].strip():
            raise ValueError(
                f'{key} is {found[key]!r}: expected a text that is not empty, such as "7" with its quotes.'
            )
    group_id = found.get("group_id", default)
    if not isinstance(group_id, int | str) or isinstance(group_id, bool):
        raise ValueError(f"group_id is {group_id!r}: expected a whole number or a text.")
    return Prompt(found["prompt"], found["answer"], group_id)


def _resume(partial: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the groups that an earlier run finished; the partial file then holds just these."""
    first, *lines = _finished_lines(partial) or [settings]
    different = sorted(key for key in settings if first.get(key) != settings[key])
    if different:
        found = ", ".join(
            f"{key} {first.get(key)!r} there, {settings[key]!r} now" for key in different
        )
        raise ValueError(
            f"{partial} was begun with other settings ({found}): use those, delete it, or change out."
        )
    rows = lines[: len(lines) // settings["samples_per_prompt"] * settings["samples_per_prompt"]]
    write_lines(partial, [settings, *rows])
    return rows


def _finished_lines(partial: Path) -> list[dict[str, Any]]:
    """Settings and rows of a partial file; what follows the last line end is half a line, and left out."""
    if not partial.exists():
        return []
    try:
        return [json.loads(line) for line in partial.read_text(encoding="utf-8").split("\n")[:-1]]
    except ValueError as error:
        raise ValueError(
            f"{partial} is not what an interrupted run leaves ({error}): delete it, or change out."
        ) from error


def _append(
    partial: Path, groups: Iterable[list[dict[str, Any]]], total: str
) -> list[dict[str, Any]]:
    """Write each group as soon as it is there. Ctrl-C says what was kept, then goes through."""
    rows: list[dict[str, Any]] = []
    try:
        with partial.open("a", encoding="utf-8", newline="\n") as file:
            for group in groups:
                file.write("".join(map(_line, group)))
                file.flush()
                rows += group
    except KeyboardInterrupt:
        kept = f"The finished ones are in {partial}: the same call goes on from there."
        tqdm.write(f"Stopped before the end of {total}. {kept}", file=sys.stderr)
        raise
    return rows


def _line(row: dict[str, Any]) -> str:
    """One row as one line of JSON, in ASCII: no reader takes a character of the text for the end of the line."""
    return json.dumps(row) + "\n"


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write under a temporary name, then move: a reader never sees half a file."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(_line, rows))


def _whole(value: Any, least: int) -> bool:
    """A whole number, not a bool, of at least ``least``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_sampling(max_new_tokens: int, temperature: float, stop: Sequence[str]) -> None:
    """The arguments of ``sample`` that are numbers and texts."""
    if not _whole(max_new_tokens, 1):
        raise ValueError(
            f"max_new_tokens is {max_new_tokens!r}: expected a whole number of at least 1."
        )
    if (
        isinstance(temperature, bool)
        or not isinstance(temperature, int | float)
        or not 0 < temperature < math.inf
    ):
        hint = "For nearly greedy completions use a small one such as 0.1."
        raise ValueError(f"temperature is {temperature!r}: expected a positive number. {hint}")
    if isinstance(stop, str) or not all(isinstance(s, str) and s for s in stop):
        raise ValueError(
            f'stop is {stop!r}: expected a list of texts that are not empty, such as ["\\n"].'
        )


def _check_run(
    samples_per_prompt: int, seed: int, checker: str, out: Path, overwrite: bool
) -> None:
    """The other arguments of ``sample_file``."""
    if not _whole(samples_per_prompt, 1):
        raise ValueError(
            f"samples_per_prompt is {samples_per_prompt!r}: expected a whole number of at least 1."
        )
    if not _whole(seed, 0) or seed >= 2**40:
        raise ValueError(f"seed is {seed!r}: expected a whole number from 0 to 2**40.")
    if checker not in CHECKERS:
        raise ValueError(f"checker is {checker!r}: expected one of {', '.join(CHECKERS)}.")
    if out.exists() and not overwrite:
        raise FileExistsError(f"out is {out}, which exists: give another name, or overwrite=True.")


def check_room(model: Any, prompt_width: int, max_new_tokens: int) -> None:
    """Prompt and completion fit into the positions that the model knows."""
    room = getattr(model.config, "max_position_embeddings", None)
    if room is not None and prompt_width + max_new_tokens > room:
        raise ValueError(
            f"max_new_tokens is {max_new_tokens} and the longest prompt has {prompt_width} tokens, but the model has "
            f"{room} positions: expected their sum to fit. Shorten one."
        )
