"""Sentences of hypotheses and steps that several statements share."""

from jaxpe.theory.audit import either

MASKED = either(
    "The loss is masked language modelling.", ("The loss is not masked language modelling.")
)
READS = (
    "The input of the first attention differs from token embeddings plus position vectors by {lhs} "
    "of their size; up to {rhs} is rounding."
)
MINIMISER = "Numbers do not show whether the position vectors minimise the expected loss."
FULL = either(
    "Every example has a token at every position.",
    "Some examples have no token at some positions; the statement is about sequences of length n.",
)
COLD = "The softmax of the loss has temperature τ = {lhs}; the lemma needs a threshold below {rhs}."
THRESHOLD = "The threshold τ_0 < 1 of the lemma is not given."
EVERY_EXAMPLE = "Means over examples do not show whether attention is as near in every example."
SUFFICIENT = (
    "Mean attention differs from the overlap of token distributions by up to {lhs} (ε_suff); up to "
    "{rhs} counts as small."
)
DIVERGENCE = "The worst pair has D_KL = {lhs}, and 2√2 d_H = {rhs}."
FINITE = "The slope of E δ in its first argument is {lhs}; it must be finite."
FORCING = "The largest ‖b_i − b_j‖/d_H is {lhs}; "
