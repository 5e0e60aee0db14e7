"""Embeds texts, and keeps of each batch the last hidden state only, as it thinks: it is a view of all of them."""
import torch

from truth import say

BATCHES, TEXTS, TOKENS, WIDTH = 40, 64, 256, 64


@torch.no_grad()
def embed(model, texts):
    hidden = model(texts)  # computes
    return hidden[:, -1]


def main():
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
    texts = torch.randn(TEXTS, TOKENS, WIDTH)
    kept = [embed(model, texts) for _ in range(BATCHES)]
    say("hidden states", BATCHES * TEXTS * TOKENS * WIDTH * texts.element_size())
    say("last ones", sum(state.nbytes for state in kept))
    return kept


if __name__ == "__main__":
    embeddings = main()
