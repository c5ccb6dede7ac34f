"""Small networks of ``torch.nn`` of the common kinds."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """The residual block of ResNet-18, or with a bottleneck that of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        outputs = width * (2 if bottleneck else 1)
        sizes = [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
        if not bottleneck:
            sizes = [(inputs, width, 3), (width, width, 3)]
        layers: list[nn.Module] = []
        strided = 1 if bottleneck else 0
        for i, (a, b, k) in enumerate(sizes):
            s = stride if i == strided else 1
            layers += [nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b)]
            if i + 1 < len(sizes):
                layers.append(nn.ReLU(inplace=True))
        self.body = nn.Sequential(*layers)
        self.skip = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.skip = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.skip(x))


def resnet(*, bottleneck: bool) -> nn.Module:
    wide = 2 if bottleneck else 1
    return nn.Sequential(
        nn.Conv2d(3, 4, 7, 2, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Block(4, 4, 1, bottleneck=bottleneck),
        Block(4 * wide, 8, 2, bottleneck=bottleneck),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8 * wide, 3),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU())
        self.middle = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.SiLU())
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Conv2d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down(x)
        low = self.middle(functional.max_pool2d(first, 2))
        smooth = functional.interpolate(
            low[:, :4], scale_factor=2, mode="bilinear", align_corners=False
        )
        return self.out(torch.cat([first, self.up(low), smooth], dim=1))


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 4, 4)
        self.depthwise = nn.Conv2d(6, 6, 7, padding=3, groups=6)
        self.norm = nn.LayerNorm(6, eps=1e-6)
        self.wide, self.narrow = nn.Linear(6, 12), nn.Linear(12, 6)
        self.scale = nn.Parameter(torch.full((6,), 0.5))
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(functional.gelu(self.wide(y)))
        return self.head((x + y.permute(0, 3, 1, 2)).mean([-2, -1]))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8))
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.encoder(x)[:, 0])


class GPT(nn.Module):
    """One causal block between tied embeddings; the loss of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, t = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(t))
        q, k, v = [
            y.view(n, t, 2, 4).transpose(1, 2) for y in self.qkv(self.norm(x)).split(8, dim=2)
        ]
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, 8))
        logits = self.head(x + self.mlp(x))
        loss = functional.cross_entropy(logits[:, :-1].reshape(-1, 11), ids[:, 1:].reshape(-1))
        return logits, loss


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.lstm = nn.LSTM(4, 3, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(6, 3, batch_first=True)
        self.head = nn.Linear(3, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(self.embed(ids))
        return functional.log_softmax(self.head(self.gru(out)[0][:, -1]), dim=-1)
