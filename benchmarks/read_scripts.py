"""Launch scripts of cloned repositories: what bash hands to the trainer, and what explain reads.

The truth is bash itself. A script runs in an empty folder without PATH, where every command that
bash does not have is a stub that records its words. As root the folder is the root of the file
system and the user is nobody, so that no program and no file can be reached; other users may give
only scripts that they trust. Compared are all settings that the framework's tables know.

Per repository: scripts (that start a trainer and that bash can run), read fully, settings lost and
named, lost and unnamed, wrong, refused with a reason, refused without one.

python benchmarks/read_scripts.py FOLDER [--show N] [--traps N]
python benchmarks/read_scripts.py --smoke      (tests/configs)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from grpo_edu.frameworks.explain import explain
from grpo_edu.frameworks.programs import FOREIGN, framework_of_keys, program
from grpo_edu.frameworks.python_files import TRAINERS
from grpo_edu.frameworks.readers import (
    OVERRIDE,
    Reading,
    python_of,
    read_notebook,
    read_python,
    read_shell,
    repaired,
    scalar,
)
from grpo_edu.frameworks.tables import framework

CONFIGS = Path(__file__).resolve().parent.parent / "tests" / "configs"
STUBBED = Path(__file__).resolve().parent / "run_stubbed.py"
NOBODY = 65534
SECONDS = 5
STUB = r"""
set +u
record() { printf '%s\0' COMMAND "$@" >&9; }  # one write: both ends of a pipe record at once
command_not_found_handle() {
  case "$1" in
    bash|sh|zsh) case "$2" in -c|-lc) eval "$3"; return ;; esac ;;
    dirname|basename|date|nproc|nvidia-smi|hostname|whoami|tr|cut|sed|awk|grep|wc|head|tail|ls)
      printf '?'; return 0 ;;
  esac
  record "$@"
  return 0
}
exec() { if [ $# -gt 0 ]; then "$@"; builtin exit $?; fi; }
source() { return 0; }
.() { return 0; }
sleep() { return 0; }
cd() { return 0; }
env() { while case "$1" in *=*|-*) true ;; *) false ;; esac; do shift; done; "$@"; }
nohup() { "$@"; }
cat() {
  if [ $# -gt 0 ]; then printf '?'; return; fi
  local l
  while IFS= read -r l; do printf '%s\n' "$l"; done
}
"""


class Row(NamedTuple):
    """One script: what became of it."""

    kind: str  # "full", "named", "unnamed", "wrong", "refused", "refused without a reason"
    detail: str = ""


def words_of(script: str) -> list[list[str]]:
    """The words of every command that bash would start, in order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        as_root = os.getuid() == 0
        _furnish(folder, script, as_root)
        record = folder / "record"
        record.touch()
        record.chmod(0o666)
        folder.chmod(0o777)
        start = f"exec 9>>{'/record' if as_root else record}\n"
        (folder / "stub").write_text(start + STUB, encoding="utf-8")
        where = "/" if as_root else f"{folder}/"
        shell = "/bin/bash" if as_root else shutil.which("bash") or "/bin/bash"
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [shell, f"{where}script.sh"],
                env={"BASH_ENV": f"{where}stub", "PATH": "/nowhere", "HOME": "/home/x"},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                preexec_fn=(lambda: _enter(folder)) if as_root else None,
                check=False,
            )
        parts = record.read_bytes().decode(errors="replace").split("\0")[:-1]
    commands: list[list[str]] = []
    for part in parts:
        if part == "COMMAND":
            commands.append([])
        elif commands:
            commands[-1].append(part)
    return commands


def _enter(folder: Path) -> None:
    """Make the folder the root of the file system, and the user nobody."""
    os.chroot(folder)
    os.chdir("/")
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def _furnish(folder: Path, script: str, as_root: bool) -> None:
    """The script in its folder and, for a root of its own, bash with its libraries."""
    (folder / "script.sh").write_text(script, encoding="utf-8")
    (folder / "dev").mkdir()
    (folder / "dev" / "null").touch()
    (folder / "dev" / "null").chmod(0o666)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o777)
    if not as_root:
        return
    listed = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
    for library in ["/bin/bash", *re.findall(r"(/\S+)", listed)]:
        target = folder / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def settings_of(words: list[str]) -> dict[str, object]:
    """Key -> value in the words of a command; of a key given twice the last."""
    settings: dict[str, object] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if re.match(r"--\w", word):
            key, equals, first = word[2:].partition("=")
            values = [first] if equals else []
            most = 1 if key in ("config-name", "config-path", "config-dir") else len(words)
            while not equals and at < len(words) and not re.match(r"--\w", words[at]):
                if len(values) == most:
                    break
                values.append(words[at])
                at += 1
            plain = [scalar(value) for value in values]
            settings[key] = plain[0] if len(plain) == 1 else plain or True
        elif match := OVERRIDE.fullmatch(word):
            settings[match[1]] = scalar(match[2])
    return settings


def run_of(commands: list[list[str]]) -> tuple[str, list[str]] | None:
    """The first run of a framework that has tables, and its words; None where there is none."""
    for words in commands:
        found = program(words)
        if found:
            return found.name, words[found.after :]
    for words in commands:
        if any(
            re.fullmatch(r"(.*/)?(python[\d.]*|torchrun|accelerate|deepspeed)|uv|ray", w)
            for w in words
        ):
            try:
                name = framework_of_keys(settings_of(words))
            except ValueError:
                name = "foreign"
            if name:
                return name, words
    return None


def compared(text: str) -> Row | None:
    """One script; None where it starts no trainer, or bash cannot run it with stubs."""
    run = run_of(words_of(text))
    if run is None:
        return None
    name, words = run
    try:
        verdict = explain(text if "\n" in text else text + "\n")
    except (ValueError, KeyError) as error:
        foreign = name in FOREIGN or name == "foreign"
        return Row(
            "refused" if str(error) else "refused without a reason",
            f"{name}{' (another program)' if foreign else ''}: {error}"[:150],
        )
    except Exception as error:  # counted, never hidden
        return Row("refused without a reason", f"{type(error).__name__}: {error}")
    if name in FOREIGN or name == "foreign" or verdict.framework != name:
        return Row("another program", f"{name} read as {verdict.framework}")
    table = framework(name)
    names = table.names()
    reading = read_shell(text)
    ours = _known({entry.key: entry.value for entry in reading.entries}, names)
    return _row(_known(settings_of(words), names), ours, reading, names)


def _row(
    truth: dict[str, object], ours: dict[str, object], reading: Reading, names: dict[str, str]
) -> Row:
    """What becomes of the settings that the program gets."""
    ours.pop("trainer", None)
    unread = {row.key for row in reading.unread}
    blanket = any(not row.key and row.line for row in reading.unread)
    lost = [key for key, value in truth.items() if ours.get(key, _NONE) != value]
    lost += [key for key in ours if key not in truth]
    lost_names = {names.get(key, names.get(key.replace("-", "_"))) for key in unread}
    unnamed = [k for k in lost if k not in lost_names and not (k not in ours and blanket)]
    if unnamed:
        rows = [f"{k}: bash {truth.get(k)!r}, here {ours.get(k)!r}" for k in unnamed]
        return Row("unnamed", "; ".join(rows)[:300])
    return Row("named", ", ".join(lost)) if lost else Row("full")


def compared_python(path: Path) -> Row | None:
    """One Python file or notebook; None where it makes no config of TRL.

    Unsloth is told by its import, which the marks of the package are not asked for here.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    if not any(f"{config}(" in text for config in TRAINERS):
        return None
    unsloth = bool(re.search(r"(import|from) unsloth", text))
    try:
        verdict = explain(path)
    except (ValueError, KeyError) as error:
        return Row("refused" if str(error) else "refused without a reason", str(error)[:150])
    except Exception as error:  # counted, never hidden
        return Row("refused without a reason", f"{type(error).__name__}: {error}")
    if unsloth and verdict.framework == "trl":
        return Row("another program", "Unsloth read as trl")
    return compared_config(path, text)


def settings_of_python(text: str) -> dict[str, object] | None:
    """The settings of the config that a trainer gets; None where the stubs do not come to one."""
    done = subprocess.run(
        [sys.executable, str(STUBBED)],
        input=repaired(text, str),
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout or "{}").get("settings")


def compared_config(path: Path, text: str) -> Row | None:
    """What the stubs record against what is read, with Unsloth or without."""
    reading = read_notebook(text) if path.suffix == ".ipynb" else read_python(text)
    truth = settings_of_python(python_of(text) if path.suffix == ".ipynb" else text)
    if truth is None:
        return None
    names = framework("trl").names()
    return _row(
        {names[key]: value for key, value in truth.items() if key in names and value is not None},
        {names[e.key]: e.value for e in reading.entries if e.key in names and e.value is not None},
        reading,
        names,
    )


_NONE = object()


def _known(settings: dict[str, object], names: dict[str, str]) -> dict[str, object]:
    known = {}
    for key, value in settings.items():
        name = names.get(key) or names.get(key.replace("-", "_"))
        if name:
            known[name] = value
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=CONFIGS)
    parser.add_argument("--show", type=int, default=0, help="that many scripts of each fault")
    parser.add_argument("--traps", type=int, default=0, help="a sample of traps, for the eye")
    parser.add_argument("--smoke", action="store_true", help="tests/configs; every script in full")
    args = parser.parse_args()
    folder = CONFIGS if args.smoke else args.folder
    below = sorted(path for path in folder.iterdir() if path.is_dir())
    kinds = ("full", "named", "unnamed", "another program", "refused", "refused without a reason")
    print(f"{'repository':34} scripts  run by bash  " + "  ".join(kinds) + "  traps")
    worst: Counter[str] = Counter()
    traps: list[str] = []
    for repository in below or [folder]:
        kinds_of_file = ("*.sh", "*.ipynb", "*.py")
        scripts = sorted(path for kind in kinds_of_file for path in repository.rglob(kind))
        counts: Counter[str] = Counter()
        shown: list[str] = []
        for script in scripts:
            if script.suffix == ".sh":
                row = compared(script.read_text(encoding="utf-8", errors="replace"))
            else:
                row = compared_python(script)
            if row is None:
                continue
            counts[row.kind] += 1
            with contextlib.suppress(ValueError, KeyError):
                of_file = explain(script).traps
                counts["traps"] += len(of_file)
                traps += [f"{script.relative_to(folder)}: {trap}" for trap in of_file]
            if row.kind != "full" and sum(kind.startswith(row.kind) for kind in shown) < args.show:
                shown.append(f"{row.kind}  {script.relative_to(folder)}: {row.detail}")
        worst += counts
        total = sum(counts[kind] for kind in kinds)
        numbers = "  ".join(f"{counts[kind]:{len(kind)}d}" for kind in kinds)
        numbers += f"  {counts['traps']:5d}"
        print(f"{repository.name:34} {len(scripts):7d}  {total:11d}  {numbers}", flush=True)
        print(*(f"    {line}" for line in shown), sep="\n" if shown else "", flush=True)
    random.seed(0)
    print(*random.sample(traps, min(args.traps, len(traps))), sep="\n")
    if args.smoke and worst["full"] != sum(worst[kind] for kind in kinds):
        raise SystemExit("not every script of tests/configs is read fully")


if __name__ == "__main__":
    main()
