"""The options of the conformance suite, and the loss that they name."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--loss``, ``--claims``, ``--set`` and ``--map``."""
    group = parser.getgroup("grpo_edu.conformance")
    group.addoption("--loss", metavar="MODULE:FUNCTION", help="the loss function to check")
    group.addoption("--claims", metavar="RECIPE", help="a recipe of the catalog: dr_grpo, dapo …")
    group.addoption(
        "--set",
        dest="loss_settings",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="another argument of the function; may be repeated",
    )
    group.addoption(
        "--map",
        dest="loss_names",
        metavar="OURS=THEIRS",
        action="append",
        default=[],
        help="the function's name of an input: logp=my_log_probs; may be repeated",
    )


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Any:
    """The loss function and its claim."""
    from .subject import from_options

    given: dict[str, Any] = vars(request.config.option)
    if given["loss"] is None or given["claims"] is None:
        raise pytest.UsageError(
            "--loss or --claims is missing: expected --loss MODULE:FUNCTION --claims RECIPE."
        )
    return from_options(given["loss"], given["claims"], given["loss_settings"], given["loss_names"])
