"""Sixty more architectures, of every kind: what the compiler meets that nobody tuned it for.

Models of `timm` (pip install --no-deps timm) and `transformers`, and small ones written out here
where no library that is installed has them. Weights are the libraries' own beginnings, seeded;
inputs are of the size that such a model is used at. Nothing here is run by the fast tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.zoo import weights
from tests.zoo.blocks import (
    detection,
    generation,
    graphs,
    recommendation,
    segmentation,
    sequences,
    sound,
    volumes,
)

Inputs = dict[str, np.ndarray]
Draw = Callable[[np.random.Generator], Inputs]
Made = tuple[nn.Module, Draw]


def normal(*shape: int, name: str = "x") -> Draw:
    return lambda random: {name: random.standard_normal(shape, np.float32)}


def tokens(length: int, vocabulary: int = 30522) -> Draw:
    return lambda random: {"tokens": random.integers(0, vocabulary, (1, length))}


def image(name: str, size: int = 224, **options: Any) -> Callable[[], Made]:
    """A model of timm."""

    def build() -> Made:
        from tests.frontend.torch import torchvision_standin

        with torchvision_standin.installed():
            import timm

            return timm.create_model(name, pretrained=False, **options), normal(1, 3, size, size)

    return build


class First(nn.Module):
    """The first output of a model of transformers, as a plain tensor."""

    def __init__(self, model: nn.Module, takes: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.takes, self.fixed = model, takes, fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(**{self.takes: x}, **self.fixed, return_dict=False)[0]


def hub(
    kind: str, given: Draw, takes: str = "input_ids", model: str = "AutoModel", **settings: Any
) -> Callable[[], Made]:
    """A model of transformers of the type `kind`, with some settings other than its own."""

    def build() -> Made:
        import transformers

        config = transformers.AutoConfig.for_model(kind, **settings)
        if hasattr(config, "use_cache"):
            config.use_cache = False
        kind_of = getattr(transformers, model)
        make = getattr(kind_of, "from_config", kind_of)
        return First(make(config), takes), given

    return build


def own(kind: Callable[[], nn.Module], given: Draw) -> Callable[[], Made]:
    return lambda: (kind(), given)


def ratings(random: np.random.Generator) -> Inputs:
    return {
        "dense": random.standard_normal((128, 13), np.float32),
        "sparse": random.integers(0, 1000, (128, 26)),
    }


def pairs(random: np.random.Generator) -> Inputs:
    return {"users": random.integers(0, 5000, 256), "items": random.integers(0, 5000, 256)}


def network(random: np.random.Generator) -> Inputs:
    """1000 nodes of 64 numbers and 5000 edges."""
    return {
        "x": random.standard_normal((1000, 64), np.float32),
        "edges": random.integers(0, 1000, (2, 5000)),
    }


def noisy(random: np.random.Generator) -> Inputs:
    return {
        "x": random.standard_normal((1, 4, 32, 32), np.float32),
        "time": random.uniform(0, 1000, 1).astype(np.float32),
    }


OTHERS: dict[str, Callable[[], Made]] = {
    # images
    "efficientnet_b0": image("efficientnet_b0"),
    "mobilenetv3_large": image("mobilenetv3_large_100"),
    "mobilenetv4_small": image("mobilenetv4_conv_small"),
    "ghostnet": image("ghostnet_100"),
    "regnety_004": image("regnety_004"),
    "convnextv2_atto": image("convnextv2_atto"),
    "resnext50": image("resnext50_32x4d"),
    "res2net50": image("res2net50_26w_4s"),
    "hrnet_w18_small": image("hrnet_w18_small"),
    "dla34": image("dla34"),
    "vovnet39a": image("vovnet39a"),
    "repvgg_a0": image("repvgg_a0"),
    "vit_tiny": image("vit_tiny_patch16_224"),
    "swin_tiny": image("swin_tiny_patch4_window7_224"),
    "mobilevit_s": image("mobilevit_s", 256),
    "efficientformerv2_s0": image("efficientformerv2_s0"),
    "fastvit_t8": image("fastvit_t8", 256),
    "poolformer_s12": image("poolformer_s12"),
    "mixer_s32": image("mixer_s32_224"),
    "edgenext_small": image("edgenext_small"),
    "levit_128": image("levit_128"),
    "coatnet_nano": image("coatnet_nano_rw_224"),
    "maxvit_pico": image("maxvit_rmlp_pico_rw_256", 256),
    # three axes
    "resnet3d_18": own(volumes.ResNet3d, normal(1, 3, 8, 112, 112)),
    "r2plus1d": own(partial(volumes.ResNet3d, factored=True), normal(1, 3, 8, 112, 112)),
    "unet3d": own(volumes.UNet3d, normal(1, 1, 32, 64, 64)),
    "timesformer": hub(
        "timesformer",
        normal(1, 8, 3, 112, 112),
        "pixel_values",
        image_size=112,
        num_hidden_layers=4,
        hidden_size=384,
        num_attention_heads=6,
        intermediate_size=1536,
    ),
    # segmentation, dilated
    "deeplabv3_resnet18": own(segmentation.DeepLab, normal(1, 3, 256, 256)),
    "erfnet": own(segmentation.ErfNet, normal(1, 3, 256, 512)),
    "unet": own(segmentation.UNet, normal(1, 3, 256, 256)),
    "segformer_b0": hub(
        "segformer",
        normal(1, 3, 512, 512),
        "pixel_values",
        "AutoModelForSemanticSegmentation",
    ),
    # detection
    "yolov3_tiny": own(detection.YoloTiny, normal(1, 3, 416, 416)),
    "yolov8n": own(detection.Yolo8, normal(1, 3, 320, 320)),
    "retinanet": own(detection.RetinaNet, normal(1, 3, 256, 256)),
    "yolos_tiny": hub(
        "yolos",
        normal(1, 3, 256, 256),
        "pixel_values",
        "AutoModelForObjectDetection",
        image_size=[256, 256],
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=768,
        num_detection_tokens=50,
        use_mid_position_embeddings=False,
    ),
    # images made
    "edsr": own(generation.Edsr, normal(1, 3, 96, 96)),
    "espcn": own(generation.Espcn, normal(1, 1, 180, 320)),
    "style_transfer": own(generation.StyleTransfer, normal(1, 3, 224, 224)),
    "diffusion_unet": own(generation.DiffusionUNet, noisy),
    "vae_decoder": own(generation.VaeDecoder, normal(1, 4, 32, 32)),
    "dit_small": own(generation.DiT, noisy),
    # sound
    "hifigan": own(sound.HifiGan, normal(1, 80, 100)),
    "wavenet": own(sound.WaveNet, normal(1, 1, 8000)),
    "conv_tasnet": own(sound.ConvTasNet, normal(1, 1, 16000)),
    "crnn_sound": own(sound.Crnn, normal(1, 1, 64, 400)),
    "wav2vec2_small": hub(
        "wav2vec2",
        normal(1, 16000),
        "input_values",
        num_hidden_layers=4,
        hidden_size=384,
        num_attention_heads=6,
        intermediate_size=1536,
    ),
    "whisper_tiny_encoder": own(sound.WhisperEncoder, normal(1, 80, 3000)),
    "spectrogram_transformer": hub(
        "audio-spectrogram-transformer",
        normal(1, 512, 128),
        "input_values",
        max_length=512,
        num_hidden_layers=4,
        hidden_size=192,
        num_attention_heads=3,
        intermediate_size=768,
    ),
    # recommender
    "dlrm": own(recommendation.Dlrm, ratings),
    "deepfm": own(recommendation.DeepFm, ratings),
    "neural_filtering": own(recommendation.NeuralFiltering, pairs),
    # graphs
    "gcn": own(graphs.Gcn, network),
    "gat": own(graphs.Gat, network),
    "gin": own(graphs.Gin, network),
    # language and state spaces
    "distilbert": hub("distilbert", tokens(128), n_layers=6),
    "albert_base": hub(
        "albert",
        tokens(128, 30000),
        embedding_size=128,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "t5_encoder": hub("t5", tokens(128, 32000), model="T5EncoderModel"),
    "llama_small": hub(
        "llama",
        tokens(64, 32000),
        hidden_size=512,
        num_hidden_layers=6,
        num_attention_heads=8,
        intermediate_size=1376,
    ),
    "gru_lexer": own(sequences.GruLexer, tokens(100, 256)),
    "mamba_small": hub(
        "mamba",
        tokens(32, 1000),
        vocab_size=1000,
        hidden_size=256,
        num_hidden_layers=4,
        state_size=16,
    ),
    "state_space": own(sequences.DiagonalStates, normal(1, 256, 128)),
}


@functools.cache
def made(name: str) -> Made:
    """The module, seeded, in eval mode, and its inputs."""
    torch.manual_seed(0)
    module, draw = OTHERS[name]()
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1 and not weight.any():  # begun as zeros: as if trained
                weight.normal_(std=0.02)
    random = np.random.default_rng(weights.SEED)
    samples = zip(draw(random).values(), draw(random).values(), strict=True)
    sample = [np.concatenate(both) for both in samples]  # norms of one pixel need two images
    return weights.calibrate(module.eval().requires_grad_(False), sample), draw


def outputs(name: str) -> list[str]:
    """Names for the module's results."""
    module, draw = made(name)
    given = [torch.from_numpy(x) for x in draw(np.random.default_rng(0)).values()]
    found = module(*given)
    return [f"y{k}" for k in range(len(found) if isinstance(found, tuple) else 1)]
