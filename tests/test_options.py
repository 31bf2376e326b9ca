"""Options of the command line made from dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import typer
from typer.testing import CliRunner

from grpo_edu.cli import app
from grpo_edu.cli.errors import Commands
from grpo_edu.cli.options import with_options
from grpo_edu.lm import train
from grpo_edu.lm.loop import Settings
from grpo_edu.lm.train import Run
from grpo_edu.settings import setting


@dataclass(frozen=True)
class Oven:
    heat: int = setting(180, "Degrees.")
    fan: bool = setting(False, "Move the air.")
    lid: bool = setting(True, "Keep it shut.", "--lid/--open")
    hidden: int = 7

    def __post_init__(self) -> None:
        if self.heat > 300:
            raise ValueError(f"heat is {self.heat}: expected at most 300.")


def baked(*arguments: str) -> tuple[str, int]:
    oven_app = typer.Typer(cls=Commands)
    oven_app.callback()(lambda: None)  # a group, as the whole command line is

    @oven_app.command()
    @with_options(oven=Oven(heat=200))
    def bake(oven: Oven, minutes: int = 10) -> None:
        typer.echo(f"{oven} {minutes}")

    result = CliRunner().invoke(oven_app, ["bake", *arguments])
    return result.output, result.exit_code


def test_defaults_are_those_of_the_object_and_options_replace_them():
    assert baked()[0] == f"{Oven(heat=200)} 10\n"
    changed = baked("--heat", "150", "--fan", "--open", "--minutes", "3")[0]
    assert changed == f"{Oven(heat=150, fan=True, lid=False)} 3\n"


def test_a_field_without_a_meaning_has_no_option_and_a_switch_has_no_opposite():
    assert baked("--hidden", "3")[1] == 2
    assert baked("--no-fan")[1] == 2
    assert "Degrees." in baked("--help")[0]


def test_what_the_dataclass_refuses_is_one_line_and_exit_code_2():
    output, code = baked("--heat", "999")
    assert (output, code) == ("error: heat is 999: expected at most 300.\n", 2)


@pytest.mark.parametrize("model", ["tiny", "smollm2"])
def test_train_has_the_defaults_of_run_and_settings(model, monkeypatch, tmp_path):
    begun = []
    monkeypatch.setattr(train, "begin", lambda run, out: begun.append(run) or iter(()))
    result = CliRunner().invoke(app, ["train", "--out", str(tmp_path), "--model", model])
    assert result.exit_code == 0, result.output
    rate = 2e-4 if model == "tiny" else 1e-6
    assert begun == [replace(Run(model=model), settings=Settings(learning_rate=rate))]
