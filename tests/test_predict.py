"""Predict, then reveal, without a browser: what a question takes, and where its answer stands."""

import pytest

pytest.importorskip("anywidget", reason="the question needs anywidget")

from grpo_edu.widgets.predict import Predict


def test_the_answer_stands_only_in_the_fold_of_the_static_twin():
    question = Predict("Is <b> pushed?", "no & never", "Its A is 0.", choices=["yes", "no & never"])
    data, _ = question._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    before, folded = data["text/html"].split("<details><summary>show the answer</summary>")
    assert "&lt;b&gt;" in before
    assert "Its A is 0." not in before
    assert "<b>no &amp; never</b> Its A is 0." in folded
    assert data["text/plain"] == "Predict('Is <b> pushed?')"
    assert len(question.figure().texts) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"answer": "c", "choices": ["a", "b"]}, "answer is 'c': expected one of a, b"),
        ({"answer": "a", "choices": ["a", "a"]}, "expected at least two different texts"),
        ({"answer": "a"}, "expected a number, or choices to pick from"),
        ({"answer": float("nan")}, "answer is nan: expected a number of size"),
        ({"answer": 3.0, "span": (0, 2)}, r"answer is 3: expected a number of the span \(0, 2\)"),
        ({"answer": "a", "choices": ["a", "b"], "span": (0, 2)}, "expected one of the two"),
    ],
)
def test_an_answer_that_no_guess_could_give_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Predict("?", **arguments)
