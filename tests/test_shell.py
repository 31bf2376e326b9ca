"""Launch scripts: the words that ``frameworks.shell`` reads are those that bash hands over."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from grpo_edu.frameworks.explain import explain
from grpo_edu.frameworks.programs import CannotTell
from grpo_edu.frameworks.shell import Script
from grpo_edu.frameworks.shell_words import MARK
from grpo_edu.frameworks.tables import FRAMEWORKS

ROOT = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def census() -> ModuleType:
    place = ROOT.parent / "benchmarks" / "read_scripts.py"
    spec = importlib.util.spec_from_file_location("read_scripts", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(text: str) -> list[list[str]]:
    return [[word.text for word in c.words] for c in Script(text, lambda _: False).commands]


SCRIPTS = {
    "nested defaults": 'A=${A:-"${B:-"x y"}/z"}\nrun "$A" $A ${C:-${D:-d}} "${E:-a,b:c}" ${F-g} "${G:-}" ${H:-}',
    "assigning defaults": ': "${A:=4}" ${B:=5}\nrun $A $B ${A:+set} ${C:+set} "${C:+x}"',
    "quotes": 'run \'a b\' "c $((1 + 1)) \\"d\\"" e\\ f \'g\'"h"i $\'j\\nk\' "it\'s" \'{"a": 1}\'',
    "single quotes in a quoted default": "run \"${A:-'x'}\" ${A:-'x y'}",
    "word splitting": 'A="a=1 b=2"\nB="  c  "\nrun $A "$A" x$A $B "$B" x$B"y" ""',
    "arrays": 'A=(a "b c" $((1+2)))\nA+=(d)\nrun "${A[@]}" ${#A[@]} "${A[1]}" "${A[*]}" x"${A[@]}"y "${A[-1]}" "${A[@]:1:2}"',
    "an empty array": 'A=()\nrun "${A[@]}" x',
    "named keys": 'declare -A M=([grpo]=1 [dapo]=2)\nK=dapo\nM[x]=3\nrun ${M[$K]} "${M["grpo"]}" ${M[x]}',
    "cutting": "P=/a/b.c.d\nrun ${P##*/} ${P%.*} ${P%%.*} ${P#*/} ${P/b/B} ${P//./_} ${P:1:3} ${#P} ${P^^}",
    "arithmetic": "A=7\nrun $((A / 2)) $((-A / 2)) $((A % 4)) $((A * (1 + 2))) $((2 ** 5)) $((A > 3 ? 1 : 0)) $((1024 * ${B:-2}))",
    "counting": "((A = 2))\n((A += 3))\nlet=1\nfor ((i = 0; i < 3; i++)); do run $i $A; done",
    "if": 'M=dapo\nif [ "$M" = grpo ]; then X=1; elif [[ $M == da* && -n "$M" ]]; then X=2; else X=3; fi\nrun $X',
    "tests": '[ 3 -gt 2 ] && run a\n[[ "abc" =~ ^a ]] && run b\n[ -z "$NONE" ] && run c\ntest 1 = 2 || run e\n! [ 1 = 2 ] && run f',
    "case": 'for M in a bc d; do case "$M" in a) run A ;; b*|x) run B ;; *) run other ;; esac; done',
    "functions": 'f() { local x=$1; shift; run "$x" "$@" $#; }\nx=0\nf a "b c"\nf d\nrun "$x"',
    "set --": 'set -- a=1 "b c"\nrun "$@" $# $2\nshift\nrun "$*"',
    "arguments of the user": 'run ${1:-d} "$@" $#',
    "heredocs": 'A=5\nrun "$(cat <<EOF\nx: $A\n  y: ${B:-6}\nEOF\n)"\nrun "$(cat <<\'EOF\'\nx: $A\nEOF\n)"',
    "a command in a heredoc": 'A=5\nread -r -d "" C <<EOF\nrun --a 1 \\\n  --b $A\nEOF\n$C',
    "echo and printf": 'f() { echo "a $1"; }\nrun "$(f 1)" $(echo x y) "$(printf %s z)"',
    "several commands": "other --x 1 &\nwait\nrun a=1 \\\n  b=2 &\nwait\nA=1 run c=3 | tee log\n(run d)\nrun e > out 2>&1",
    "a comment in a command": "run a=1 \\\n  # note\n  b.c=2",
    "braces": "for i in {1..3}; do run $i; done\nrun a{b,c} '{x,y}'",
    "while": "A=0\nwhile [ $A -lt 3 ]; do A=$((A + 1)); [ $A -eq 2 ] && continue; run $A; done",
    "bash -c": 'bash -c "run a \'b c\'"\nX="d e"\neval "run $X"',
    "indirect": "A=B\nB=3\nrun ${!A}",
    "exported": 'export A=1 B="x y"\nreadonly C=2\nrun $A "$B" $C\nunset A\nrun ${A:-gone}',
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_words_are_those_of_bash(census: ModuleType, name: str) -> None:
    text = SCRIPTS[name] + "\n"
    there = [command for command in census.words_of(text) if command[0] != "tee"]
    here = [command for command in words(text) if command[0] not in ("tee", "log")]
    assert there
    if " &\n" in text:  # a command in the background is recorded when its turn comes
        here, there = sorted(here), sorted(there)
    assert here == there


def test_every_script_of_the_fixtures_is_read_fully(census: ModuleType) -> None:
    for script in sorted((ROOT / "configs").glob("*.sh")):
        row = census.compared(script.read_text(encoding="utf-8"))
        assert row == ("full", ""), script.name


RUN = "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "


@pytest.mark.parametrize(
    ("before", "setting", "reason"),
    [
        ("N=$(nproc)", "n=$N", "'nproc' would have to be run"),
        ("", "n=$((N * 2))", "the variable N is not set in this file"),
        ("if curl x; then N=4; else N=8; fi", "n=$N", "N depends on the branch 'if curl x; then N=4; else N=8; fi' (line 1)"),
        ("curl x && N=4", "n=${N:-8}", "N depends on the branch 'curl x && N=4' (line 1)"),
        ("case $(uname) in Linux) N=4 ;; esac", "n=$N", "N depends on the branch"),
        ("read N", "n=$N", "N is read from a file or the keyboard"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_named_with_its_line(
    before: str, setting: str, reason: str
) -> None:
    verdict = explain(f"{before}\n{RUN}actor_rollout_ref.rollout.{setting}\n")
    (row,) = verdict.unread
    assert row.startswith(f"line 2: actor_rollout_ref.rollout.n = … is not read: {reason}")
    assert row.endswith("; the default 1 stands in")


def test_what_two_ways_have_in_common_stays_known() -> None:
    text = 'A=(a=1)\nif curl x; then A+=(b=2); fi\nB="c d"\ncurl y || B="$B e"\nrun "${A[@]}" $B\n'
    (*_, run) = words(text)
    assert [MARK.sub("?", word) for word in run] == ["run", "a=1", "?", "c", "d", "?"]


def test_an_exit_of_a_wrong_use_is_not_followed_and_one_after_the_run_is() -> None:
    usage = 'if [ $# -lt 2 ]; then echo usage; exit 1; fi\nrun "${1:-x}"\n'
    assert words(usage) == [["run", "x"]]
    script = Script("if true; then run a; exit; fi\nrun b\n", lambda w: w[0].text == "run")
    assert len(script.commands) == 1


def test_settings_after_the_end_of_the_command_are_named() -> None:
    verdict = explain(f"{RUN}\\\n  # note\n  actor_rollout_ref.rollout.n=8\n")
    assert verdict.unread == [
        "line 3: actor_rollout_ref.rollout.n stands after the end of the command: it is not "
        "handed over; the default 1 stands in"
    ]


@pytest.mark.parametrize(
    "text",
    ["while true; do A=$A; done\n", "f() { f; }\nf\n", "A=x\n" + "A=$A$A\n" * 60, "for ((;;)); do :; done\n", "echo $((9**9**9**9))\n", "if (\n"],
)  # fmt: skip
def test_scripts_that_never_end_are_left(text: str) -> None:
    assert len(words(text + "run\n")) <= 1


def test_another_program_gets_no_verdict() -> None:
    for text, name in (
        ("python3 -m verl.trainer.main worker.actor.loss_type=gspo_token\n", "EasyR1"),
        ("swift rlhf --rlhf_type grpo --num_generations 8\n", "ms-swift"),
        ("rl: grpo\ntrl:\n  loss_type: dr_grpo\n  num_generations: 8\n", "axolotl"),
        ("from unsloth import FastLanguageModel\nGRPOConfig(beta=0.1)\n", "Unsloth"),
    ):
        table = name.lower().replace("-", "_")
        if table in FRAMEWORKS:
            assert explain(text).framework == table
            continue
        with pytest.raises(CannotTell, match=name):
            explain(text)
        assert CannotTell.exit_code == 1
    assert explain("from unsloth import FastLanguageModel\nGRPOConfig(beta=0.1)\n", "trl").kl


def test_the_first_line_says_what_the_verdict_rests_on() -> None:
    def first(text: str) -> str:
        return str(explain(text)).splitlines()[0]

    assert "the program is not named" in first("python x.py --loss_type grpo --beta 0.1\n")
    assert "(the program is recipe.sppo.main_sppo, which may change" in first(
        "python -m recipe.sppo.main_sppo algorithm.adv_estimator=grpo\n"
    )
    assert "line 1: the settings in r.yaml are not read" in first(
        "trl grpo --config r.yaml --beta 0.1\n"
    )
    assert first("pip install trl==0.22.2\ntrl grpo --beta 0.1\n") == "read as trl 0.22.2"
    assert "every line is a default" in first("trl grpo --learning_rate 1e-6\n")
    assert first(f"{RUN}data.train_batch_size=8\n") == (
        "read as verl 0.9.1 (assumed: the newest read; --version settles it)"
    )


def test_a_config_that_the_script_writes_is_read(tmp_path: Path) -> None:
    text = "cat > c.yaml <<EOF\nloss_type: dr_grpo\nbeta: 0.04\nEOF\ntrl grpo --config c.yaml --beta 0.1\n"
    (tmp_path / "run.sh").write_text(text, encoding="utf-8")
    verdict = explain(tmp_path / "run.sh")
    assert verdict.claim == "dr_grpo"
    assert "0.1·" in verdict.kl
