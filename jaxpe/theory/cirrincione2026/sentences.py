"""Sentences of hypotheses and steps that several statements share."""

from jaxpe.theory.audit import either

MASKED = either("The loss is that of masked tokens.", "The loss is not that of masked tokens.")
READS = (
    "What the first attention reads differs from token embeddings plus position vectors by {lhs} "
    "of their size; up to {rhs} is rounding."
)
COLD = "The softmax of the loss has temperature τ = {lhs}; a threshold below {rhs} is asked."
SUFFICIENT = (
    "Mean attention differs from the overlap of token distributions by up to {lhs} (ε_suff); up to "
    "{rhs} is taken as small."
)
DIVERGENCE = "The worst pair has D_KL = {lhs}, and 2√2 d_H = {rhs}."
FINITE = "The slope of E δ in its first argument is {lhs}; it has to be finite."
FORCING = "The largest ‖b_i − b_j‖/d_H is {lhs}; "
