"""Architectures of transformers, torchvision and timm with tiny random configurations, and inputs for them."""

import contextlib
import io

import torch

# What the fields of a configuration become, where there are such fields.
_TINY = {
    "vocab_size": 99, "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embedding_size": 32, "embedding_dim": 32,
    "word_embed_proj_dim": 32,
    "intermediate_size": 48, "d_ff": 48, "ffn_dim": 48, "hidden_dim": 48, "n_inner": 48, "d_inner": 48, "moe_intermediate_size": 32,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "shared_expert_intermediate_size": 48, "ffn_hidden_size": 48, "dff": 48,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "num_decoder_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 64, "n_positions": 64, "seq_length": 64, "max_seq_len": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1, "image_size": 32, "patch_size": 8, "num_labels": 3, "attention_dropout": 0.0,
}  # fmt: skip

# By kind of input: class (or class: fields beside the tiny ones).
CAUSAL = {
    "LlamaForCausalLM": {}, "MistralForCausalLM": {"sliding_window": 4}, "Qwen2ForCausalLM": {}, "Qwen3ForCausalLM": {},
    "GemmaForCausalLM": {},
    "Gemma2ForCausalLM": {"sliding_window": 4},
    "Gemma3ForCausalLM": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "PhiForCausalLM": {}, "Phi3ForCausalLM": {}, "GPTNeoXForCausalLM": {}, "GPT2LMHeadModel": {},
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]], "window_size": 4}, "GPTJForCausalLM": {"rotary_dim": 4},
    "FalconForCausalLM": {}, "OPTForCausalLM": {}, "BloomForCausalLM": {}, "MptForCausalLM": {}, "StableLmForCausalLM": {},
    "Starcoder2ForCausalLM": {}, "OlmoForCausalLM": {}, "Olmo2ForCausalLM": {}, "CohereForCausalLM": {},
    "Cohere2ForCausalLM": {"sliding_window": 4},
    "GraniteForCausalLM": {}, "CodeGenForCausalLM": {"rotary_dim": 4}, "PersimmonForCausalLM": {}, "NemotronForCausalLM": {},
    "GlmForCausalLM": {}, "Glm4ForCausalLM": {}, "HeliumForCausalLM": {}, "SmolLM3ForCausalLM": {}, "Ernie4_5ForCausalLM": {},
    "Exaone4ForCausalLM": {"sliding_window": 4}, "MixtralForCausalLM": {}, "Qwen3MoeForCausalLM": {}, "Qwen2MoeForCausalLM": {},
    "OlmoeForCausalLM": {},
    "GptOssForCausalLM": {"sliding_window": 4},
    "DeepseekV3ForCausalLM": {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
                              "num_key_value_heads": 4, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "MambaForCausalLM": {}, "Mamba2ForCausalLM": {"num_heads": 8, "state_size": 8, "n_groups": 1, "chunk_size": 4},
    "FalconMambaForCausalLM": {},
    "XGLMForCausalLM": {"attention_heads": 4}, "BioGptForCausalLM": {}, "OpenAIGPTLMHeadModel": {}, "XLNetLMHeadModel": {},
    "CTRLLMHeadModel": {}, "BitNetForCausalLM": {},
}  # fmt: skip
ENCODERS = {
    "BertModel": {}, "RobertaModel": {}, "DistilBertModel": {}, "ElectraModel": {}, "AlbertModel": {}, "DebertaModel": {},
    "DebertaV2Model": {},
    "MPNetModel": {}, "RoFormerModel": {}, "ModernBertModel": {"local_attention": 4, "global_attn_every_n_layers": 2},
    "MobileBertModel": {"intra_bottleneck_size": 32, "true_hidden_size": 32}, "SqueezeBertModel": {},
    "ConvBertModel": {"head_ratio": 2}, "NystromformerModel": {"num_landmarks": 6, "segment_means_seq_len": 6}, "FNetModel": {},
    "XLMRobertaModel": {},
    "FunnelModel": {"block_sizes": [1, 1], "d_head": 8}, "CanineModel": {}, "LayoutLMModel": {}, "LongformerModel": {"attention_window": 4},
}  # fmt: skip
PAIRS = {
    "T5ForConditionalGeneration": {}, "BartForConditionalGeneration": {}, "MBartForConditionalGeneration": {}, "MarianMTModel": {},
    "PegasusForConditionalGeneration": {}, "BlenderbotForConditionalGeneration": {}, "M2M100ForConditionalGeneration": {},
    "MT5ForConditionalGeneration": {}, "LongT5ForConditionalGeneration": {"local_radius": 4}, "ProphetNetForConditionalGeneration": {
        "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "ngram": 2,
    },
}  # fmt: skip
IMAGES = {
    "ViTModel": {}, "DeiTModel": {}, "BeitModel": {}, "Dinov2Model": {},
    "SwinModel": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "patch_size": 4, "window_size": 4},
    "Swinv2Model": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "patch_size": 4, "window_size": 4},
    "ConvNextModel": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 4},
    "SegformerModel": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2],
    "patch_sizes": [7, 3, 3, 3]},
    "ResNetModel": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "RegNetModel": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8},
    "MobileViTModel": {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 16], "patch_size": 2},
    "PoolFormerModel": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 7},
    "HieraModel": {"embed_dim": 8, "image_size": [32, 32], "patch_size": [4, 4], "depths": [1, 1, 1], "num_heads": [1, 2, 4],
    "query_stride": [2, 2], "num_query_pool": 2, "patch_stride": [2, 2],
                   "patch_padding": [1, 1], "masked_unit_size": [4, 4]}, "MobileNetV2Model": {"depth_multiplier": 0.25},
    "EfficientNetModel": {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
}  # fmt: skip
OTHERS = {
    "CLIPModel": {}, "SiglipModel": {},
    "WhisperForConditionalGeneration": {"num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 16},
    "Wav2Vec2Model": {"conv_dim": [8, 8], "conv_kernel": [5, 3], "conv_stride": [4, 2], "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
                      "num_conv_pos_embedding_groups": 2},
    "HubertModel": {"conv_dim": [8, 8], "conv_kernel": [5, 3], "conv_stride": [4, 2], "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
                    "num_conv_pos_embedding_groups": 2},
    "ASTModel": {"num_mel_bins": 16, "max_length": 16},
    "PatchTSTModel": {"context_length": 16, "patch_length": 4, "patch_stride": 4, "num_input_channels": 2},
}  # fmt: skip
TRANSFORMERS = CAUSAL | ENCODERS | PAIRS | IMAGES | OTHERS


def config_of(cls, more):
    """The tiny configuration of a class of transformers."""
    kind, parts = cls.config_class, getattr(cls.config_class, "sub_configs", {})
    fields = {**kind().to_dict(), **{k: None for k in getattr(kind, "attribute_map", {})}}
    aliases = getattr(kind, "attribute_map", {})
    given = {k: v for k, v in _TINY.items() if k in fields and aliases.get(k) not in more}
    for part, sub in parts.items():
        inner = sub().to_dict() if hasattr(sub, "to_dict") else {}
        given[part] = {k: v for k, v in _TINY.items() if k in inner}
    return kind(**{**given, **more})


def of_transformers(name, seed=0):
    """A model in evaluation mode whose weights are no special numbers."""
    import transformers

    cls = getattr(transformers, name)
    with contextlib.redirect_stderr(io.StringIO()):
        torch.manual_seed(seed)
        model = cls(config_of(cls, TRANSFORMERS[name])).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point():
                p.add_(torch.randn_like(p) * 0.02)
    return model


def inputs_of(name, batch=2, length=6):
    """Keywords of a call."""
    ids = lambda n: torch.randint(3, 99, (batch, n))  # noqa: E731
    if name in CAUSAL or name in ENCODERS:
        return {"input_ids": ids(length)}
    if name in PAIRS:
        return {"input_ids": ids(length), "decoder_input_ids": ids(4)}
    if name in IMAGES:
        return {"pixel_values": torch.randn(batch, 3, 32, 32)}
    return {
        "CLIPModel": lambda: {"input_ids": ids(length), "pixel_values": torch.randn(batch, 3, 32, 32)},
        "SiglipModel": lambda: {"input_ids": ids(length), "pixel_values": torch.randn(batch, 3, 32, 32)},
        "WhisperForConditionalGeneration": lambda: {"input_features": torch.randn(batch, 8, 16), "decoder_input_ids": ids(length)},
        "Wav2Vec2Model": lambda: {"input_values": torch.randn(batch, 80 + 8 * length)},
        "HubertModel": lambda: {"input_values": torch.randn(batch, 80 + 8 * length)},
        "ASTModel": lambda: {"input_values": torch.randn(batch, 16, 16)},
        "PatchTSTModel": lambda: {"past_values": torch.randn(batch, 16, 2)},
    }[name]()


def _vision():
    import torchvision.models as tv

    return {
        "resnet": lambda: tv.resnet.ResNet(tv.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5),
        "resnext": lambda: tv.resnet.ResNet(tv.resnet.Bottleneck, [1, 1, 1, 1], num_classes=5, groups=4, width_per_group=8),
        "mobilenet_v2": lambda: tv.MobileNetV2(5, 0.1, [[1, 16, 1, 1], [6, 24, 2, 2]]),
        "mobilenet_v3": lambda: tv.mobilenet_v3_small(num_classes=5, reduced_tail=True),
        "shufflenet": lambda: tv.ShuffleNetV2([1, 1, 1], [8, 16, 16, 16, 32], 5),
        "densenet": lambda: tv.DenseNet(8, (2, 2), 8, num_classes=5),
        "squeezenet": lambda: tv.SqueezeNet("1_1", 5),
        "convnext": lambda: tv.ConvNeXt([tv.convnext.CNBlockConfig(8, 16, 1), tv.convnext.CNBlockConfig(16, None, 1)], num_classes=5),
        "swin": lambda: tv.SwinTransformer([4, 4], 8, [1, 1], [1, 2], [4, 4], num_classes=5),
        "vit": lambda: tv.VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=5),
        "efficientnet": lambda: tv.EfficientNet(
            [tv.efficientnet.MBConvConfig(1, 3, 1, 8, 8, 1), tv.efficientnet.MBConvConfig(6, 3, 2, 8, 16, 1)], 0.2, num_classes=5
        ),
        "mnasnet": lambda: tv.MNASNet(0.1, 5),
    }


VISION = (
    "resnet", "resnext", "mobilenet_v2", "mobilenet_v3", "shufflenet", "densenet", "squeezenet", "convnext", "swin", "vit", "efficientnet",
    "mnasnet",
)  # fmt: skip


def of_torchvision(name, seed=0):
    """A model in evaluation mode."""
    torch.manual_seed(seed)
    return _vision()[name]().eval()


# timm: architecture: (fields, side of its images)
TIMM = {
    "vit_tiny_patch16_224": ({"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}, 32),
    "deit_tiny_distilled_patch16_224": ({"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}, 32),
    "eva02_tiny_patch14_224": ({"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}, 32),
    "swin_tiny_patch4_window7_224": (
        {"img_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}, 32),
    "cait_xxs24_224": ({"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}, 32),
    "xcit_nano_12_p16_224": ({"img_size": 32, "embed_dim": 16, "depth": 1, "num_heads": 2}, 32),
    "repvgg_a0": ({}, 32), "regnety_002": ({}, 32), "starnet_s1": ({}, 32), "mambaout_femto": ({}, 64),
    "mobilevit_xxs": ({}, 64),
}  # fmt: skip


def of_timm(name, seed=0):
    """A model in evaluation mode, and the side of its images."""
    import timm

    fields, side = TIMM[name]
    torch.manual_seed(seed)
    return timm.create_model(name, num_classes=5, **fields).eval(), side
