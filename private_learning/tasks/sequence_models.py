"""Models of sequences of tokens: recurrent units or a transformer between an embedding and a linear layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TokenModel(nn.Module):
    """(n, static + length) to (n, outputs): numbers of the patient first, then tokens, 0 behind the last.

    Places behind a patient's last token change no output, and neither do the other patients of a batch.
    """

    def __init__(self, tokens: int, static: int, width: int, state: int, outputs: int) -> None:
        super().__init__()
        self.static = static
        self.embed = nn.Embedding(tokens, width, padding_idx=0)
        self.head = nn.Linear(state + static, outputs)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x[:, self.static :].long()
        real = tokens != 0
        return self.head(torch.cat([x[:, : self.static], self.state(self.embed(tokens), real)], 1))

    def state(self, embedded: Tensor, real: Tensor) -> Tensor:
        """Return (n, state), zeros where a patient has no event.

        embedded: (n, length, width). real: (n, length) booleans.
        """
        raise NotImplementedError


class Recurrent(TokenModel):
    """The state of the last layer after the newest event."""

    def __init__(self, kind: str, tokens: int, static: int, width: int, hidden: int, layers: int, outputs: int) -> None:
        super().__init__(tokens, static, width, hidden, outputs)
        self.units = (nn.GRU if kind == "gru" else nn.LSTM)(width, hidden, layers, batch_first=True)

    def state(self, embedded: Tensor, real: Tensor) -> Tensor:
        states: Tensor = self.units(embedded)[0]
        newest = (real.sum(1) - 1).clamp(min=0)
        last = states.gather(1, newest[:, None, None].expand(-1, 1, states.shape[2])).squeeze(1)
        return last * real.any(1, keepdim=True)


class Transformer(TokenModel):
    """The mean over the events of the encoder's outputs. Places in the sequence are learned."""

    def __init__(
        self, tokens: int, static: int, length: int, width: int, heads: int, hidden: int, layers: int, outputs: int
    ) -> None:
        super().__init__(tokens, static, width, width, outputs)
        self.places = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, batch_first=True)
        self.units = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def state(self, embedded: Tensor, real: Tensor) -> Tensor:
        places = torch.arange(real.shape[1], device=real.device).expand(real.shape)
        # A patient without an event would attend to no place, which has no mean.
        hidden = ~real & real.any(1, keepdim=True)
        states: Tensor = self.units(embedded + self.places(places), src_key_padding_mask=hidden)
        weights = real.unsqueeze(2).to(states)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)
