"""Kimi-Linear token by token in float64, written from its definition: nothing of vLLM's, nothing of the kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn.functional import silu, softplus


class KimiReference:
    """The model in a folder. `feed` consumes tokens one by one, as a decode does."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.weights = {
            name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()
        }
        self.layers = self.config["num_hidden_layers"]
        self.memory: list[dict[str, torch.Tensor]] = [{} for _ in range(self.layers)]

    def feed(self, tokens: Sequence[int]) -> torch.Tensor:
        """Log-probabilities of what follows each token, [T, vocabulary]."""
        return torch.stack([self._step(token) for token in tokens])

    def forget_states(self) -> None:
        """Loses every recurrent state; keys, values and convolutions stay."""
        for memory in self.memory:
            memory.pop("state", None)

    def _step(self, token: int) -> torch.Tensor:
        x = self.weights["model.embed_tokens.weight"][token]
        for index in range(self.layers):
            prefix = f"model.layers.{index}"
            is_kda = index + 1 in self.config["linear_attn_config"]["kda_layers"]
            mixer = self._kda if is_kda else self._attention
            x = x + mixer(
                f"{prefix}.self_attn", self.memory[index], self._norm(x, f"{prefix}.input_layernorm")
            )
            normed = self._norm(x, f"{prefix}.post_attention_layernorm")
            has_experts = index >= self.config["first_k_dense_replace"]
            x = x + (
                self._experts(f"{prefix}.block_sparse_moe", normed)
                if has_experts
                else self._mlp(f"{prefix}.mlp", normed)
            )
        return self._linear("lm_head", self._norm(x, "model.norm")).log_softmax(dim=-1)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self.weights[f"{name}.weight"] @ x

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = (x.square().mean(dim=-1, keepdim=True) + self.config["rms_norm_eps"]).rsqrt()
        return x * scale * self.weights[f"{name}.weight"]

    def _mlp(
        self, name: str, x: torch.Tensor, parts: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    ) -> Any:
        gate, up, down = (f"{name}.{part}" for part in parts)
        return self._linear(down, silu(self._linear(gate, x)) * self._linear(up, x))

    def _experts(self, name: str, x: torch.Tensor) -> torch.Tensor:
        scores = self._linear(f"{name}.gate", x).sigmoid()
        # The bias sways the choice, not the weight.
        biased = scores + self.weights[f"{name}.gate.e_score_correction_bias"]
        chosen = biased.topk(self.config["num_experts_per_token"]).indices
        shares = scores[chosen] / scores[chosen].sum() * self.config["routed_scaling_factor"]
        out = self._mlp(f"{name}.shared_experts", x)
        for share, expert in zip(shares, chosen.tolist(), strict=True):
            out = out + share * self._mlp(f"{name}.experts.{expert}", x, ("w1", "w3", "w2"))
        return out

    def _attention(self, name: str, memory: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        heads, rank = self.config["num_attention_heads"], self.config["kv_lora_rank"]
        nope, rope = self.config["qk_nope_head_dim"], self.config["qk_rope_head_dim"]
        q = self._linear(f"{name}.q_proj", x).view(heads, nope + rope)
        latent, shared = self._linear(f"{name}.kv_a_proj_with_mqa", x).split([rank, rope])
        kv = self._linear(f"{name}.kv_b_proj", self._norm(latent, f"{name}.kv_a_layernorm")).view(heads, -1)
        k = torch.cat([kv[:, :nope], shared.expand(heads, rope)], dim=1)
        for kind, new in (("k", k), ("v", kv[:, nope:])):
            memory[kind] = torch.cat([memory[kind], new[None]]) if kind in memory else new[None]
        scores = torch.einsum("hd,thd->ht", q, memory["k"]) / (nope + rope) ** 0.5
        return self._linear(
            f"{name}.o_proj", torch.einsum("ht,thd->hd", scores.softmax(dim=1), memory["v"]).flatten()
        )

    def _kda(self, name: str, memory: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        linear = self.config["linear_attn_config"]
        heads, size = linear["num_heads"], linear["head_dim"]
        q, k, v = (self._convolved(name, part, memory, x).view(heads, size) for part in "qkv")
        q, k = (part / (part.square().sum(dim=1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
        raw = self._linear(f"{name}.f_b_proj", self._linear(f"{name}.f_a_proj", x))
        rate = softplus(raw + self.weights[f"{name}.dt_bias"]).view(heads, size)
        decay = (-self.weights[f"{name}.A_log"].view(heads, 1).exp() * rate).exp()
        beta = self._linear(f"{name}.b_proj", x).sigmoid()[:, None]
        state = memory.get("state", x.new_zeros(heads, size, size)) * decay[:, None, :]  # [H, V, K]
        read = torch.einsum("hvk,hk->hv", state, k)
        memory["state"] = state + (beta * (v - read))[:, :, None] * k[:, None, :]
        mixed = torch.einsum("hvk,hk->hv", memory["state"], q) * size**-0.5
        gate = self._linear(f"{name}.g_b_proj", self._linear(f"{name}.g_a_proj", x)).view(heads, size)
        return self._linear(
            f"{name}.o_proj", (self._norm(mixed, f"{name}.o_norm") * gate.sigmoid()).flatten()
        )

    def _convolved(
        self, name: str, part: str, memory: dict[str, torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        new = self._linear(f"{name}.{part}_proj", x)
        taps = self.weights[f"{name}.{part}_conv1d.weight"][:, 0].T  # [taps, channels], the newest last
        window = torch.cat([memory.get(part, new.new_zeros(len(taps) - 1, len(new))), new[None]])
        memory[part] = window[1:]
        return silu((window * taps).sum(dim=0))
