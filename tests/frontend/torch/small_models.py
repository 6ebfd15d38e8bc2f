"""Architectures of `transformers` and `timm` as small modules, with inputs for their forward.

Models of transformers are made small: their own configuration with few layers and narrow ones, random
weights. Models of timm (pip install --no-deps timm) are the least of their family, on small images.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from tests.frontend.torch import torchvision_standin

TEXT = (
    "albert bert bert-generation big_bird biogpt camembert canine convbert data2vec-text deberta "
    "deberta-v2 distilbert electra ernie esm flaubert fnet funnel ibert layoutlm megatron-bert "
    "mobilebert modernbert mpnet mra nystromformer rembert roberta roberta-prelayernorm roc_bert "
    "roformer squeezebert xlm-roberta xmod yoso"
).split()
DECODERS = (
    "bloom codegen cohere ctrl falcon gemma gemma2 gemma3_text glm gpt2 gpt_bigcode gpt_neo gpt_neox "
    "gptj granite llama mamba mistral mpt nemotron olmo olmo2 opt persimmon phi phi3 qwen2 qwen3 "
    "smollm3 stablelm starcoder2 xglm"
).split()
PAIRS = (
    "bart blenderbot blenderbot-small m2m_100 marian mbart mvp pegasus plbart t5 umt5 mt5".split()
)
VISION = (
    "beit bit convnext convnextv2 cvt data2vec-vision deit dinov2 efficientnet focalnet glpn hiera "
    "ijepa levit mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 poolformer pvt pvt_v2 regnet resnet "
    "segformer siglip_vision_model clip_vision_model swin swinv2 vit vit_msn yolos"
).split()
AUDIO = (
    "audio-spectrogram-transformer data2vec-audio hubert sew unispeech unispeech-sat wav2vec2 wavlm "
    "whisper speech_to_text"
).split()
BOTH = "altclip blip chinese_clip clip clipseg groupvit layoutlmv3 siglip vilt flava".split()

TIMM = {
    "beit": "beit_base_patch16_224", "byobnet": "test_byobnet", "cait": "cait_xxs24_224",
    "coat": "coat_lite_tiny", "convit": "convit_tiny", "convmixer": "convmixer_768_32",
    "convnext": "convnext_atto", "crossvit": "crossvit_tiny_240", "cspnet": "cspresnet50",
    "davit": "davit_tiny", "deit": "deit_tiny_distilled_patch16_224", "densenet": "densenet121",
    "dla": "dla34", "dpn": "dpn48b", "edgenext": "edgenext_xx_small",
    "efficientformer": "efficientformer_l1", "efficientformer_v2": "efficientformerv2_s0",
    "efficientnet": "test_efficientnet", "eva": "eva02_tiny_patch14_224", "fasternet": "fasternet_t0",
    "fastvit": "fastvit_t8", "focalnet": "focalnet_tiny_srf", "ghostnet": "ghostnet_050",
    "hardcorenas": "hardcorenas_a", "hgnet": "hgnetv2_b0", "hrnet": "hrnet_w18_small",
    "inception_next": "inception_next_atto", "inception_v3": "inception_v3", "levit": "levit_128s",
    "mambaout": "mambaout_femto", "maxxvit": "test_coatnet", "metaformer": "poolformer_s12",
    "mlp_mixer": "mixer_s32_224", "mobilenetv3": "mobilenetv3_small_050", "mobilevit": "mobilevit_xxs",
    "mvitv2": "mvitv2_tiny", "nest": "nest_tiny", "nextvit": "nextvit_small", "nfnet": "test_nfnet",
    "pit": "pit_ti_224", "pvt_v2": "pvt_v2_b0", "regnet": "regnetx_002", "repghost": "repghostnet_050",
    "repvit": "repvit_m0_9", "res2net": "res2net50_14w_8s", "resnest": "resnest14d", "resnet": "resnet18",
    "resnetv2": "resnetv2_50", "rexnet": "rexnet_100", "selecsls": "selecsls42b", "senet": "legacy_seresnet18",
    "sknet": "skresnet18", "starnet": "starnet_s050", "swiftformer": "swiftformer_xs",
    "swin_transformer": "swin_tiny_patch4_window7_224", "tiny_vit": "tiny_vit_5m_224", "tnt": "tnt_s_legacy_patch16_224",
    "tresnet": "tresnet_m", "twins": "twins_pcpvt_small", "vgg": "vgg11", "visformer": "visformer_tiny",
    "vision_transformer": "vit_tiny_patch16_224", "volo": "volo_d1_224", "vovnet": "vovnet39a",
    "xception": "legacy_xception", "xcit": "xcit_nano_12_p16_224",
}  # fmt: skip
FEW_LAYERS: list[dict[str, Any]] = [
    *({key: (1,) * stages} for key in ("depths", "depth", "layers") for stages in (4, 3)),
    {"depth": 2},
    {},
]
LEAST_IMAGE = 96  # of models that take images of any size

SMALL: dict[str, Any] = {  # attributes of configurations, wherever a configuration has them
    "vocab_size": 99, "hidden_size": 32, "d_model": 32, "dim": 32, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_layers": 2,
    "n_heads": 4, "num_heads": 4, "num_layers": 2, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64, "hidden_dim": 64, "ffn_dim": 64, "d_ff": 64, "d_kv": 8,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "embedding_size": 32, "max_position_embeddings": 64, "n_positions": 64,
    "max_source_positions": 100, "max_target_positions": 64, "image_size": 32, "patch_size": 8, "projection_dim": 16,
    "num_decoder_layers": 2, "encoder_hidden_size": 32, "emb_dim": 32, "word_embed_proj_dim": 32, "rotary_dim": 8,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "output_hidden_states": False,
    "hidden_size_per_layer_input": 8, "max_seq_len": 64, "max_length": 64, "num_mel_bins": 16,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1, "state_size": 4,
    "time_step_rank": 4, "expand": 2, "mask_token_id": 3, "n_inner": 64, "ffn_embed_dim": 64, "conv_bias": True, "kv_channels": 8, "time_feature_size": 4,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {  # and what some need besides
    "wav2vec2": {"conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 2), "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "funnel": {"architectures": ["FunnelModel"], "block_sizes": [1, 1], "block_repeats": [1, 1], "num_decoder_layers": 1, "d_head": 8, "d_inner": 64},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "esm": {"vocab_size": 99, "pad_token_id": 0, "mask_token_id": 3},
    "nemotron": {"num_key_value_heads": 2},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4, "input_size": 32},
    "siglip": {"projection_size": 32},
    "flaubert": {"n_langs": 1},
    "ctrl": {"dff": 64},
    "big_bird": {"attention_type": "original_full"},
    "persimmon": {"num_key_value_heads": 4},
    "audio-spectrogram-transformer": {"max_length": 40, "frequency_stride": 8, "time_stride": 8},
    "speech_to_text": {"input_feat_per_channel": 16},
    "mobilenet_v1": {"initializer_range": 0.2},
    "mobilenet_v2": {"initializer_range": 0.15},
    "swin": {"image_size": 32, "window_size": 4, "depths": [2, 2], "num_heads": [2, 4], "embed_dim": 32},
    "levit": {"image_size": 64, "patch_size": 16, "num_attention_heads": [2, 2, 2], "hidden_sizes": [16, 24, 32], "key_dim": [8, 8, 8], "initializer_range": 0.5},
    "mobilevit": {"initializer_range": 0.3},
    "mobilevitv2": {"initializer_range": 0.3},
    "efficientnet": {"width_coefficient": 0.5, "depth_coefficient": 0.3, "hidden_dim": 640, "initializer_range": 0.5},
}  # fmt: skip
for _name in ("hubert", "unispeech", "unispeech-sat", "wavlm", "data2vec-audio", "sew"):
    OWN[_name] = OWN["wav2vec2"]
OWN["sew"] = {**OWN["wav2vec2"], "squeeze_factor": 2}
OWN["mobilebert"]["embedding_size"] = 32


def shrink(config: Any, own: dict[str, Any], common: dict[str, Any] = SMALL) -> Any:
    """A configuration made small in place, with those inside it."""
    inside = [k for k, v in vars(config).items() if hasattr(v, "model_type")]
    for name, value in {**common, **own}.items():
        had = getattr(config, name, None)
        plain = isinstance(had, int) and not isinstance(had, bool)
        if plain or (name in own and name in vars(config)):
            with suppress(AttributeError, NotImplementedError):  # computed from others
                setattr(config, name, value)
    if vars(config).get("layer_types"):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    for name, most in (("depths", 2), ("depth", 3)):  # layers of each stage
        depths = vars(config).get(name)
        if isinstance(depths, list | tuple):
            setattr(config, name, type(depths)(min(d, most) for d in depths))
    for name in inside:
        shrink(getattr(config, name), own, common)
    return config


def of_transformers(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A small model and inputs for its forward."""
    import transformers

    config = transformers.AutoConfig.for_model(name)
    convolves = name in VISION and "num_attention_heads" not in vars(config)
    config = shrink(config, OWN.get(name, {}), {"image_size": 64} if convolves else SMALL)
    config.use_cache = name in DECODERS
    kind = transformers.AutoModelForCausalLM if name in DECODERS else transformers.AutoModel
    model = alive(kind.from_config(config).eval())
    inputs = inputs_of(name, model, config)
    if name in DECODERS and name not in ("mamba",):
        inputs = {**inputs, "use_cache": True}
    return model, inputs


def inputs_of(name: str, model: nn.Module, config: Any) -> dict[str, Tensor]:
    torch.manual_seed(1)
    takes = inspect.signature(model.forward).parameters
    inputs: dict[str, Tensor] = {}
    if name not in VISION and name not in AUDIO:
        length = 16 if name == "canine" else 9
        vocabulary = getattr(getattr(config, "text_config", config), "vocab_size", 99)
        ids = torch.randint(4, min(99, vocabulary), (2, length))
        inputs["input_ids"] = ids
        if "attention_mask" in takes and name not in ("fnet",):
            inputs["attention_mask"] = torch.ones_like(ids)
            inputs["attention_mask"][1, -3:] = 0
        if name in PAIRS:
            inputs["decoder_input_ids"] = torch.randint(4, 99, (2, 5))
    if name in VISION or name in BOTH:
        vision = getattr(config, "vision_config", getattr(config, "image_config", config))
        size = getattr(vision, "image_size", getattr(vision, "input_size", 64))
        size = size if isinstance(size, int) else size[0]
        inputs["pixel_values"] = torch.randn(2 if name in BOTH else 1, 3, size, size)
    if name == "layoutlmv3":
        inputs["bbox"] = torch.randint(0, 60, (2, 9, 4)).sort(-1).values
    if name == "audio-spectrogram-transformer":
        inputs["input_values"] = torch.randn(1, config.max_length, config.num_mel_bins)
    elif name == "whisper":
        inputs["input_features"] = torch.randn(
            1, config.num_mel_bins, 2 * config.max_source_positions
        )
        inputs["decoder_input_ids"] = torch.randint(4, 99, (1, 5))
    elif name == "speech_to_text":
        inputs["input_features"] = torch.randn(1, 40, config.input_feat_per_channel)
        inputs["decoder_input_ids"] = torch.randint(4, 99, (1, 5))
    elif name in AUDIO:
        inputs["input_values"] = torch.randn(1, 1600)
    return inputs


def shallow(timm: Any, name: str) -> Iterator[nn.Module]:
    """A model with few layers, as far as its family can be asked for them."""
    for few in FEW_LAYERS:
        with suppress(TypeError, IndexError, AssertionError, ValueError, RuntimeError):
            yield timm.create_model(name, pretrained=False, **few)


def of_timm(family: str) -> tuple[nn.Module, dict[str, Any]]:
    with torchvision_standin.installed():
        import timm

        torch.manual_seed(0)
        model = alive(next(shallow(timm, TIMM[family])).eval())
    given = model.default_cfg
    size = given["input_size"][-1] if given.get("fixed_input_size") else LEAST_IMAGE
    torch.manual_seed(1)
    return model, {"x": torch.randn(1, 3, size, size)}


def alive(model: nn.Module) -> nn.Module:
    """Weights that begin as zeros, as if trained: else a head says the same of everything."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1 and not weight.any():
                weight.normal_(std=0.1)
    return model


LIBRARIES: dict[str, tuple[list[str], Callable[[str], tuple[nn.Module, dict[str, Any]]]]] = {
    "transformers": ([*TEXT, *DECODERS, *PAIRS, *VISION, *AUDIO, *BOTH], of_transformers),
    "timm": (list(TIMM), of_timm),
}
