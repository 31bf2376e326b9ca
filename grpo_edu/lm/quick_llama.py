"""A small Llama's forward pass without the bookkeeping: for drawing tokens on a CPU, where that costs more than the arithmetic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

WIDEST = 256  # hidden size from which on arithmetic dominates and the model's own forward pass is as quick


class QuickLlama:
    """Reads the weights of a ``LlamaForCausalLM`` and stands in for it in ``generate``: the same logits up to rounding.

    Args:
        model: as many key heads as query heads, no biases, the default rotary embedding; see ``fits``.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.config, self.device = model, model.config, model.device
        self.heads, self.head = (
            model.config.num_attention_heads,
            model.config.hidden_size // model.config.num_attention_heads,
        )
        places = torch.arange(model.config.max_position_embeddings)[None]
        cos, sin = model.model.rotary_emb(torch.zeros(1, dtype=model.dtype), places)
        self.cos, self.sin = cos[0], sin[0]
        self.refresh()

    @staticmethod
    def fits(model: Any) -> bool:
        """True for the small Llamas that this class can stand in for, on a CPU."""
        c = model.config
        plain = (
            c.model_type == "llama"
            and not (c.attention_bias or c.mlp_bias)
            and c.hidden_act == "silu"
        )
        rope = (getattr(c, "rope_parameters", None) or {}).get("rope_type", "default") == "default"
        whole = c.num_key_value_heads == c.num_attention_heads if plain else False
        return bool(
            plain and rope and whole and c.hidden_size < WIDEST and model.device.type == "cpu"
        )

    def refresh(self) -> None:
        """Read the weights again; call it after an optimiser step."""
        self.layers = []
        for layer in self.model.model.layers:
            a, m = layer.self_attn, layer.mlp
            joined = torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]).detach()
            opened = torch.cat([m.gate_proj.weight, m.up_proj.weight]).detach()
            norms = (
                layer.input_layernorm.weight.detach(),
                layer.post_attention_layernorm.weight.detach(),
            )
            self.layers.append(
                (
                    norms[0],
                    joined,
                    a.o_proj.weight.detach(),
                    norms[1],
                    opened,
                    m.down_proj.weight.detach(),
                )
            )

    def forward(self, input_ids: Tensor, past_key_values: Any = None, **others: Any) -> Any:
        return self(input_ids, past_key_values=past_key_values, **others)

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past_key_values: Cache | None = None,
        **_: Any,
    ) -> Any:
        """Logits of the last position, ``[N, 1, V]``, and the cache."""
        n, t = input_ids.shape
        cache = past_key_values or Cache(len(self.layers), n, self.heads, self.head, self.cos.dtype)
        start, end = cache.reserve(t)
        mask = _mask(attention_mask, t)
        cos, sin = self.cos[position_ids][:, None], self.sin[position_ids][:, None]
        x, eps, half = (
            self.model.model.embed_tokens.weight.detach()[input_ids],
            self.config.rms_norm_eps,
            self.head // 2,
        )
        for number, (norm, joined, out, norm2, opened, closed) in enumerate(self.layers):
            qkv = (
                F.linear(F.rms_norm(x, norm.shape, norm, eps), joined)
                .view(n, t, 3 * self.heads, self.head)
                .transpose(1, 2)
            )
            qk, value = qkv[:, : 2 * self.heads], qkv[:, 2 * self.heads :]
            qk = qk * cos + torch.cat([-qk[..., half:], qk[..., :half]], dim=-1) * sin
            keys, values = cache.keys[number], cache.values[number]
            keys[:, :, start:end], values[:, :, start:end] = qk[:, self.heads :], value
            seen = F.scaled_dot_product_attention(
                qk[:, : self.heads], keys[:, :, :end], values[:, :, :end], attn_mask=mask
            )
            x = x + F.linear(seen.transpose(1, 2).reshape(n, t, -1), out)
            gate, up = F.linear(F.rms_norm(x, norm2.shape, norm2, eps), opened).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, closed)
        last = self.model.model.norm.weight.detach()
        logits = F.linear(
            F.rms_norm(x[:, -1:], last.shape, last, eps), self.model.lm_head.weight.detach()
        )
        return SimpleNamespace(logits=logits, past_key_values=cache)


class Cache:
    """Keys and values, ``[layers, N, heads, room, head]``; the room grows by half where it is used up."""

    def __init__(self, layers: int, n: int, heads: int, head: int, dtype: torch.dtype) -> None:
        self.keys = torch.zeros(layers, n, heads, 64, head, dtype=dtype)
        self.values, self.length = torch.zeros_like(self.keys), 0

    def reserve(self, more: int) -> tuple[int, int]:
        """Make room for more tokens; where they start and end."""
        start, self.length = self.length, self.length + more
        while self.length > self.keys.shape[3]:
            room = (0, 0, 0, self.keys.shape[3] // 2)
            self.keys, self.values = F.pad(self.keys, room), F.pad(self.values, room)
        return start, self.length

    def batch_select_indices(self, rows: Tensor) -> None:
        """Keep these rows only; the name is that of the caches in transformers."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]


def _mask(attention: Tensor, new: int) -> Tensor | None:
    """What the last ``new`` positions may look at, ``[N, 1, new, L]`` bool; None where that is everything.

    A padded position looks at itself, so that no row is empty.
    """
    length = attention.shape[1]
    if new == 1:
        return None if bool(attention.all()) else attention.bool()[:, None, None]
    causal = torch.ones(new, length, dtype=torch.bool).tril(length - new)
    own = torch.eye(length, dtype=torch.bool)[-new:]
    return ((causal & attention.bool()[:, None]) | own)[:, None]
