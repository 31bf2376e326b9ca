"""Sampling completions with the exact log-probability of every token, and writing them, scored, as
JSON lines.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..checks import one_of, positive, whole_number
from ..completions import completion_row
from ..draws import generator_of
from ..files import json_line, write_json_lines
from .checkers import CHECKERS, Checker
from .generate import Completions, generate
from .models import load
from .prompts import Prompt, read_prompts
from .tokens import check_room, completion_text, encode, end_ids, stop_texts


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
    r"""One completion per prompt, drawn from the model as it is: no top-k, no top-p, no repetition
    penalty.

    .. math:: o_t \sim \mathrm{softmax}(z_t / \tau), \qquad \mathrm{logp}_t = \log
        \mathrm{softmax}(z_t / \tau)_{o_t}

    The softmax is taken in float32 over the raw logits z, under the temperature τ that is sampled
    with: the log-prob belongs to the sampler. For τ other than 1 it is not the log-prob of the
    untempered model.

    Args:
        model: causal language model with a key-value cache, in eval mode (``load``).
        tokenizer: of the model. Its end token and those of ``model.generation_config`` end a
            completion.
        prompts: N texts; repeat a prompt to get several completions of it.
        max_new_tokens: limit T of the completion length, end token included.
        generator: the only source of randomness, on the model's device.
        temperature: τ, positive.
        stop: texts that end a completion; the token that completes one is the last and counts as an
            end.
        chat: wrap each prompt as one user turn of the tokenizer's chat template.

    Raises:
        ValueError: a limit or temperature that is not positive, no prompts, prompts too long for
            the model.
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

    Each prompt has its own generator, seeded by ``seed`` and its place: what is drawn does not
    depend on ``start``.

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
        prompt = prompts[place]
        generator = generator_of(seed, place, model.device)
        texts = [prompt.prompt] * samples_per_prompt
        drawn = sample(model, tokenizer, texts, generator=generator, **sampling)
        ends = end_ids(model, tokenizer)
        rows = []
        for i, keep in enumerate(drawn.mask):
            ids = drawn.ids[i][keep].tolist()
            text = completion_text(tokenizer, ids, ends)
            logp = drawn.logp[i][keep]
            rows.append(
                completion_row(
                    {"logp": logp, "ref_logp": logp},
                    group_id=prompt.group_id,
                    sample_id=i,
                    prompt=prompt.prompt,
                    answer=prompt.answer,
                    completion=text.completion,
                    reward=float(checker(text.completion, prompt.answer)),
                    truncated=bool(drawn.truncated[i]),
                    max_new_tokens=sampling["max_new_tokens"],
                    tokens=text.tokens,
                    token_ids=ids,
                )
            )
        yield rows


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
    """Sample and score completions of every prompt of a file: one JSON line per completion.

    Finished prompts are kept in ``out`` + ".partial", also after Ctrl-C. The same call goes on from
    there, and gives the same file as a run that was never interrupted.

    Columns: ``group_id, sample_id, prompt, answer, completion, tokens, token_ids, logp, ref_logp,
    reward, truncated, max_new_tokens``. ``tokens`` joined is the completion, followed by the end
    token's own text where there is one (``token_texts`` says how characters of several tokens
    look). ``logp`` is float32 to its last digit. ``ref_logp`` equals it: the frozen model is the
    sampler.

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
        ValueError: an argument, a line of the prompts file, or a partial file that does not fit;
            says which and why.
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
    run = {"samples_per_prompt": samples_per_prompt, "seed": seed, **sampling}
    _sample_into(model, Path(prompts), Path(out), checker, run, progress)
    return Path(out)


def _sample_into(
    model: str | tuple[Any, Any],
    prompts: Path,
    out: Path,
    checker: str,
    run: dict[str, Any],
    progress: bool,
) -> None:
    """Go on from the partial file, if there is one, and write the whole file at the end.

    ``run``: the settings of ``sample_groups``.
    """
    asked = read_prompts(prompts, CHECKERS[checker])
    name = model if isinstance(model, str) else model[0].name_or_path
    digest = hashlib.sha256(prompts.read_bytes()).hexdigest()
    partial = Path(f"{out}.partial")
    rows = _resume(partial, {"model": name, "prompts_sha256": digest, "checker": checker, **run})
    net, tokenizer = load(model) if isinstance(model, str) else model
    start = len(rows) // run["samples_per_prompt"]
    groups = sample_groups(net, tokenizer, asked, CHECKERS[checker], start=start, **run)
    with tqdm(
        groups, initial=start, total=len(asked), unit="prompt", disable=None if progress else True
    ) as bar:
        rows += _append(partial, bar, f"{len(asked)} prompts")
    write_json_lines(out, rows)
    partial.unlink()


def _resume(partial: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the groups that an earlier run finished.

    The partial file then holds just these.
    """
    first, *lines = _finished_lines(partial) or [settings]
    different = sorted(key for key in settings if first.get(key) != settings[key])
    if different:
        changes = ", ".join(
            f"{key} {first.get(key)!r} there, {settings[key]!r} now" for key in different
        )
        raise ValueError(
            f"{partial} was begun with other settings ({changes}): use those, delete it, or change "
            f"out."
        )
    size = settings["samples_per_prompt"]
    rows = lines[: len(lines) // size * size]
    write_json_lines(partial, [settings, *rows])
    return rows


def _finished_lines(partial: Path) -> list[dict[str, Any]]:
    """Settings and rows of a partial file.

    What follows the last line end is half a line, and left out.
    """
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
                file.write("".join(map(json_line, group)))
                file.flush()
                rows += group
    except KeyboardInterrupt:
        kept = f"The finished ones are in {partial}: the same call goes on from there."
        tqdm.write(f"Stopped before the end of {total}. {kept}", file=sys.stderr)
        raise
    return rows


def _check_sampling(max_new_tokens: int, temperature: float, stop: Sequence[str]) -> None:
    """The arguments of ``sample`` that are numbers and texts."""
    whole_number("max_new_tokens", max_new_tokens, 1)
    hint = "; for nearly greedy completions use a small one such as 0.1"
    positive("temperature", temperature, hint)
    if isinstance(stop, str) or not all(isinstance(s, str) and s for s in stop):
        raise ValueError(
            f'stop is {stop!r}: expected a list of texts that are not empty, such as ["\\n"].'
        )


def _check_run(
    samples_per_prompt: int, seed: int, checker: str, out: Path, overwrite: bool
) -> None:
    """The other arguments of ``sample_file``."""
    whole_number("samples_per_prompt", samples_per_prompt, 1)
    whole_number("seed", seed, 0)
    if seed >= 2**40:
        raise ValueError(f"seed is {seed}: expected a whole number from 0 to 2**40.")
    one_of("checker", checker, CHECKERS)
    if out.exists() and not overwrite:
        raise FileExistsError(f"out is {out}, which exists: give another name, or overwrite=True.")
