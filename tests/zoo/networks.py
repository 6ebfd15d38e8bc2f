"""The networks of the zoo as torch modules: positional tensors in, a tuple of tensors out.

Architectures that `transformers` has are built from its configurations and only wrapped; the others
are written here after their papers. All are built with whatever weights torch gives: `weights.py`
draws the real ones.
"""

from __future__ import annotations

import torch
import transformers  # its classes by their full names: naming one imports its file
from torch import Tensor, nn

CLASSES = 1000


class Classifier(nn.Module):
    """An image classifier of transformers: image f32[n, 3, 224, 224] → scores f32[n, 1000]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> tuple[Tensor]:
        return (self.network(image).logits,)


def resnet18() -> nn.Module:
    config = transformers.ResNetConfig(
        layer_type="basic",
        depths=[2, 2, 2, 2],
        hidden_sizes=[64, 128, 256, 512],
        num_labels=CLASSES,
    )
    return Classifier(transformers.ResNetForImageClassification(config))


def resnet50() -> nn.Module:
    return Classifier(
        transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=CLASSES))
    )


def mobilenet_v1() -> nn.Module:
    config = transformers.MobileNetV1Config(num_labels=CLASSES)
    return Classifier(transformers.MobileNetV1ForImageClassification(config))


def mobilenet_v2() -> nn.Module:
    config = transformers.MobileNetV2Config(num_labels=CLASSES)
    return Classifier(transformers.MobileNetV2ForImageClassification(config))


class Product(nn.Module):
    """The product of two matrices that are both inputs, f32[m, k] and f32[k, n]."""

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor]:
        return (a @ b,)


class DQN(nn.Module):
    """The Q-network for Atari games: four frames f32[n, 4, 84, 84] → f32[n, 18].

    Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015.
    """

    def __init__(self, actions: int = 18) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512),
            nn.ReLU(),
            nn.Linear(512, actions),
        )

    def forward(self, frames: Tensor) -> tuple[Tensor]:
        return (self.layers(frames),)


class DCGAN(nn.Module):
    """The image generator: noise f32[n, 100] → image f32[n, 3, 64, 64] between -1 and 1.

    A dense layer to 4x4, then four transposed 4x4 convolutions of stride 2; `width` is the channel
    count before the last. Radford et al., "Unsupervised Representation Learning ...", ICLR 2016.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.channels = 8 * width
        self.project = nn.Linear(100, self.channels * 4 * 4)
        layers: list[nn.Module] = [nn.BatchNorm2d(self.channels), nn.ReLU()]
        for inputs, outputs in ((8, 4), (4, 2), (2, 1)):
            layers += [
                nn.ConvTranspose2d(inputs * width, outputs * width, 4, 2, 1, bias=False),
                nn.BatchNorm2d(outputs * width),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, noise: Tensor) -> tuple[Tensor]:
        seed = self.project(noise).reshape(-1, self.channels, 4, 4)
        return (self.layers(seed),)


class LanguageModel(nn.Module):
    """Two LSTM layers over words: tokens i64[t, n], state f32[2, n, h] twice → scores, new state.

    Zaremba et al., "Recurrent Neural Network Regularization", 2014: the medium model. `unrolled`
    writes every cell of every step out, so that no recurrent operator is left in the file.
    """

    def __init__(self, unrolled: bool, hidden: int = 650, vocabulary: int = 10000) -> None:
        super().__init__()
        self.unrolled = unrolled
        self.embed = nn.Embedding(vocabulary, hidden)
        self.recur = nn.LSTM(hidden, hidden, num_layers=2)
        self.decode = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        words = self.embed(tokens)
        if self.unrolled:
            outputs, h, c = self.unroll(words, h, c)
        else:
            outputs, (h, c) = self.recur(words, (h, c))
        return self.decode(outputs), h, c

    def unroll(self, words: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hs, cs = list(h.unbind(0)), list(c.unbind(0))
        outputs = []
        for x in words.unbind(0):
            for layer in range(len(hs)):
                hs[layer], cs[layer] = self.cell(layer, x, hs[layer], cs[layer])
                x = hs[layer]
            outputs.append(x)
        return torch.stack(outputs), torch.stack(hs), torch.stack(cs)

    def cell(self, layer: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        w_x, w_h, b_x, b_h = self.recur.all_weights[layer]
        gates = nn.functional.linear(x, w_x, b_x) + nn.functional.linear(h, w_h, b_h)
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Bert(nn.Module):
    """BERT-base: tokens, mask, types i64[n, t] → states f32[n, t, 768], pooled f32[n, 768]."""

    def __init__(self) -> None:
        super().__init__()
        self.network = transformers.BertModel(transformers.BertConfig(attn_implementation="eager"))

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        result = self.network(input_ids=tokens, attention_mask=mask, token_type_ids=types)
        return result.last_hidden_state, result.pooler_output


class Gpt2(nn.Module):
    """GPT-2 small, prefill: tokens i64[n, t] → scores f32[n, t, 50257]."""

    def __init__(self) -> None:
        super().__init__()
        self.network = transformers.GPT2LMHeadModel(transformers.GPT2Config())

    def forward(self, tokens: Tensor) -> tuple[Tensor]:
        return (self.network(tokens, use_cache=False).logits,)


class Gpt2Decode(nn.Module):
    """GPT-2 small, one step: a token and each layer's past keys and values → scores and presents.

    `past` holds key, value of layer 0, key, value of layer 1, ...: f32[n, 12, p, 64] each; the
    presents come back in the same order, one position longer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.network = transformers.GPT2LMHeadModel(transformers.GPT2Config())

    def forward(self, token: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.network(token, past_key_values=cache, use_cache=True)
        presents = [x for layer in cache.layers for x in (layer.keys, layer.values)]
        return result.logits, *presents
