"""Operators that are made of others: PyTorch's decompositions, and those that it lacks."""

import functools

__all__ = ["decompositions"]


@functools.cache
def _table(torch, others):
    ours = {torch.ops.aten._native_multi_head_attention.default: _attention, torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer}
    return {**torch._decomp.decomposition_table, **torch.export.default_decompositions(), **ours}


def decompositions(torch, missing=()):
    """{operator: function that computes it by others}; what is `missing` may have been registered since the last call."""
    return _table(torch, frozenset(t for t in missing if getattr(t, "namespace", "aten") != "aten"))


def _attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask=None,
               need_weights=True, average_attn_weights=True, mask_type=None):  # fmt: skip
    """``torch._native_multi_head_attention``: (result, attention weights or None)."""
    import torch

    linear = torch.ops.aten.linear.default
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (linear(x, w, b).unflatten(-1, (num_head, -1)).transpose(1, 2) for x, w, b in zip((query, key, value), weights, biases))
    scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-2, -1)
    shares = _masked_softmax(torch, scores, mask, mask_type)
    out = linear((shares @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return out, torch.empty(0, dtype=out.dtype, device=out.device)
    return out, shares.mean(1) if average_attn_weights else shares


def _masked_softmax(torch, scores, mask, mask_type):
    """Where the mask is not 0, a share is. mask_type 0: (queries, keys), 1: (batch, keys), 2: the shape of the scores."""
    if mask is None:
        return torch.softmax(scores, -1)
    hidden = (mask[:, None, None, :] if mask_type == 1 else mask).to(torch.bool)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)


def _encoder_layer(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
                   norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2,
                   ffn_bias_2, mask=None, mask_type=None):  # fmt: skip
    """``torch._transformer_encoder_layer_fwd``: a layer of ``torch.nn.TransformerEncoder``."""
    import torch

    def norm(x, weight, bias):
        return torch.ops.aten.layer_norm.default(x, (embed_dim,), weight, bias, eps)

    def attended(x):
        more = proj_weight, proj_bias, mask, False, True, mask_type
        return _attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, *more)[0]

    def fed_forward(x):
        hidden = torch.ops.aten.linear.default(x, ffn_weight_1, ffn_bias_1)
        hidden = torch.ops.aten.gelu.default(hidden) if use_gelu else torch.ops.aten.relu.default(hidden)
        return torch.ops.aten.linear.default(hidden, ffn_weight_2, ffn_bias_2)

    first, second = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    if norm_first:
        x = src + attended(norm(src, *first))
        return x + fed_forward(norm(x, *second))
    x = norm(src + attended(src), *first)
    return norm(x + fed_forward(x), *second)
