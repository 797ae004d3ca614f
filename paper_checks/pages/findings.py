"""What was found against the sources, a sentence or two each, the most consequential first.

The README has the first of them, CLAIMS.md all, and ``depthlaw explain`` that of its claim. The verdict beside a
sentence comes from the document of ``depthlaw verify``; a test holds that these are exactly the claims that are
REFUTED, MISPRINT or CONDITIONAL, so a verdict that changes makes its sentence a red test.
"""

from __future__ import annotations

FIRST = 8
"""How many the README has."""

FINDINGS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("S3-10",),
        "Sub-LN's update grows as L^0.47, not as log L, with ReLU and a real LayerNorm: LayerNorm subtracts ReLU's "
        "mean and so divides by too little. With RMSNorm it is log L. With GELU Post-LN explodes exponentially, and "
        "Pre-LN grows as L^0.07",
    ),
    (
        ("S3-14", "S2-20", "S3-12", "S2-24"),
        "Magneto's gain sqrt(log L) is to keep the update from growing with depth. With ReLU and RMSNorm it does; "
        "with ReLU and LayerNorm, or with GELU, the update still grows. So the guarantee of stable training that "
        "rests on it is not established; whether training is stable is open. In a real Transformer with softmax "
        "attention the update of the matrices nearly doubles from 4 layers to 1,000. That of the norm gains, which "
        "a default model trains too, grows as L^0.31 over these depths, and as L^0.25 at their deep end",
    ),
    (
        ("DN-10",),
        "DeepNorm keeps the update of the weight matrices flat in depth. The norm gains and biases, which a default "
        "model trains too, are not kept: their update grows as L at fixed width, and that of linear biases as "
        "L^(1/2). In real Transformers with softmax attention it is so too, derived up to 1,000 layers. Su's rows "
        "for SGD and Adam break it in the same roles, LAMB's in the norm gains (as published it moves no bias that is "
        "zero), and at Pre-Norm the linear biases grow as L under SGD and Adam",
    ),
    (
        ("DN-02", "DN-03", "DN-08", "DN-09"),
        "DeepNet's theorems fail in the scalar model that they are proved in, DeepNet's own alpha and beta "
        "included: factors that are each about 1 multiply to exp(0.59 N^(1/4)) over the layers. In wide random "
        "networks with ReLU they hold, since contributions add as squares",
    ),
    (
        ("S2-08",),
        "Magneto's Theorem 3.1 (Pre-LN) holds at equal gains with ReLU, but not for any gains: v_l = w_l = 1, 3, 9, "
        "27 gives 0.91 against a bound of 0.74, and faster growth breaks it by any factor",
    ),
    (
        ("S2-13",),
        "Magneto's Theorem 3.2 (Sub-LN): at gains 1, ReLU and LayerNorm exceed the bound from 11 sublayers on; at "
        "uneven gains it fails for every activation and norm",
    ),
    (
        ("S3-49", "S3-04"),
        "a smaller update at initialisation does not mean more stable training, as the slides of Magneto conclude, "
        "between networks whose norms stand in different places: small Pre-LN and NormFormer models, whose updates "
        "are several times DeepNorm's, still end below the entropy of the labels at far larger rates. Beside "
        "Post-LN it is so: DeepNorm and Su's row for Adam pass where it is stuck",
    ),
    (
        ("S1-34",),
        "Su: LAMB's step has ||theta||/sqrt(n) for a matrix of n entries, not ||theta||",
    ),
    (
        ("S2-17", "S3-09", "S3-03"),
        "Magneto's paper says that its update is smaller than Pre-LN's when a sublayer explodes. One term of its "
        "bound is. The whole bound is not, if it is the first sublayer that explodes. The true update is larger "
        "whichever explodes, with ReLU, LayerNorm and all other gains 1. With equal gains in all sublayers the two "
        "printed bounds are the same",
    ),
    (
        ("S2-11",),
        "Post-LN's update is O(sum v^2 + w^2) with ReLU; with GELU at gains 1 it grows as exp(0.021 L)",
    ),
    (
        ("S2-18",),
        "Magneto's Theorem 3.3 (encoder-decoder) fails as its Theorem 3.2 does, and names the self-attention (l % 3 "
        "= 1) where it means the cross-attention (l % 3 = 2)",
    ),
    (
        ("DN-07",),
        "DeepNet's alpha and beta for the encoder of an encoder-decoder follow from a sum that counts the passage "
        "through the cross-attentions once; the gradient passes them too, and in that model the encoder's share "
        "then grows as M^(1/4)/4.56, past 1 at M = 433. In wide networks it stays bounded, derived and measured, so "
        "they are safe there",
    ),
    (
        ("DN-11",),
        "DeepNet assumes alpha > 1 and beta > 1: beta is below 1 for every N, alpha of the encoder where N^4 M < 30",
    ),
    (
        ("DN-01",),
        "DeepNet's Lemma 4.1: a softmax average has at most the magnitude of one token, but not that magnitude: it "
        "is 0 for two opposite tokens. The proof's ||x|| = d is sqrt(d)",
    ),
    (
        ("DN-15",),
        "the gradient of a LayerNorm is of order sqrt(d) over the length of the centred x: printed with ||x||, it "
        "fails at a large mean, and holds for RMSNorm",
    ),
    (
        ("S1-18",),
        "Su: the gradients of lambda_q, lambda_k are not small because of softmax: at logits over sqrt(d) they are "
        "as large as v's in one layer. In stacks at that scale their share does fall, since tokens become parallel "
        "or v and out are scaled down; with the unscaled softmax of the text it does not",
    ),
    (
        ("S1-10",),
        "Su: dL/dlambda is no probe of dL/dW where a norm makes the loss invariant to the scale of W, as Sub-LN's "
        "W1: it is 0 there",
    ),
    (
        ("S1-07",),
        "Su: the lambda of a Xavier matrix is sqrt(2) times its gain, for every shape, not the gain",
    ),
    (
        ("S1-08",),
        "Su: a Xavier matrix is not close to orthogonal: a square one is at relative distance 0.71 at every width, "
        "where the zero matrix is at 1",
    ),
    (
        ("S3-43",),
        "Magneto's slides: 'better performance' on GPT does not hold of every average that they print: four-shot at 48 "
        "layers NormFormer leads, 64.7 to 64.5 (no spread is printed). It does of the other five of the six, and of "
        "their mean",
    ),
    (
        ("S1-25",),
        "Su: lambda = 1/alpha is his own choice; DeepNet has beta = 1/(sqrt(2) alpha)",
    ),
    (
        ("S2-05",),
        "Magneto's (7) has x^l = G^l(x^(l-1)) where its (8) adds x^(l-1)",
    ),
    (
        ("S3-06",),
        "Magneto's slides leave the activation out of Theorem 2's sublayer, and it matters (S3-10)",
    ),
    (
        ("S3-07",),
        "Magneto's slides lose the index l of the weights' scales",
    ),
    (
        ("S1-12",),
        "Su: phi(lambda x) = lambda phi(x) is exact for ReLU; for GELU and Swish within 0.17 and 0.28 times max(1, "
        "lambda)",
    ),
    (
        ("S1-20",),
        "Su: averaging tokens keeps their magnitude where they are correlated, or few of them carry the weight; T "
        "independent ones with equal weights lose a factor sqrt(T)",
    ),
    (
        ("S1-30",),
        "Su: Adam's step is -eta sign(g) at the first step; later one only while the gradient keeps its sign and size",
    ),
    (
        ("S1-39",),
        "Su: the whole model is near the identity where the branch weights are small beside (2N)^(-1/2), which his "
        "three rows meet; that each branch weight is small does not suffice",
    ),
)


def finding_of(id_: str) -> tuple[tuple[str, ...], str] | None:
    """The claims that share a finding with this one, itself among them, and the finding; None where there is none.

    >>> from paper_checks.pages.findings import finding_of
    >>> finding_of("S1-25")
    (('S1-25',), 'Su: lambda = 1/alpha is his own choice; DeepNet has beta = 1/(sqrt(2) alpha)')
    """
    return next(((ids, text) for ids, text in FINDINGS if id_ in ids), None)
