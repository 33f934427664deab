"""Sentences about each comparison of an audit, with both of its numbers.

By statement and claim, which begins with "if" (a hypothesis), "then" (a conclusion) or "instead"
(what holds in its place). The equations are in the docstrings of `jaxpe.theory`.
"""

_DIVERGENCE = "The worst pair has D_KL = {lhs}, and 2√2 d_H = {rhs}."
_FINITE = "The slope of E δ in its first argument is {lhs}; it has to be finite."
_FORCING = "The largest ‖b_i − b_j‖/d_H is {lhs}; "
_MASKED = "The loss is that of masked tokens."
_READS = (
    "What the first attention reads differs from token embeddings plus position vectors by {lhs} "
    "of their size; up to {rhs} is rounding."
)
_ENDS = "The worst pair of positions ends {lhs} apart; "
_COLD = "The softmax of the loss has temperature τ = {lhs}; a threshold below {rhs} is asked."
_SUFFICIENT = (
    "Mean attention differs from the overlap of token distributions by up to {lhs} (ε_suff); up to "
    "{rhs} is taken as small."
)
_TIES = "Of two positions equally far from a third, the worst are {lhs} and {rhs} away from it"
_STRICT = "In the worst triple the nearer position is {lhs} away and the farther one {rhs}"

_SENTENCES = {
    "Theorem 1": {
        "if no other order": "Nothing but position vectors tells the model an order.",
        "then equivariant": (
            "Outputs of permuted tokens differ from permuted outputs by {lhs} of the largest "
            "output; up to {rhs} is rounding."
        ),
    },
    "Theorem 4": {
        "if attention reads E + p": _READS,
        "if coercive": (
            "The loss along a ray rises by {rhs}; to grow without bound it has to rise by more "
            "than {lhs}, 1.5 times its rise up to the geometric middle."
        ),
        "if H1": "The two nearest mean embeddings are {rhs} apart; more than {lhs} is asked.",
        "if H2": (
            "Of the swaps of two positions tried, the least useful changes the expected loss by "
            "{rhs}; more than {lhs} is asked."
        ),
        "if H3": (
            "The worst head maps a difference of mean embeddings to {rhs} of its size; more than "
            "{lhs} is asked."
        ),
        "then separated": (
            "The two nearest position vectors are {rhs} apart; more than {lhs} is claimed."
        ),
    },
    "Conjecture 5": {
        "if strict": f"{_STRICT}, in Hellinger distance; none may be farther.",
        "if ties": f"{_TIES}, in Hellinger distance; equality is asked.",
        "then strict": f"{_STRICT}, between position vectors; none may be farther.",
        "then ties": f"{_TIES}, between position vectors; equality is claimed.",
    },
    "Proposition 6": {
        "then minimal stress": (
            "Classical MDS has a stress of {lhs}, and SMACOF, started there, {rhs}; none lower is "
            "claimed."
        ),
    },
    "Remark 7": {
        "if stationary": (
            "The offset |i − j| leaves {lhs} of the variance of d² unexplained; up to {rhs} is "
            "taken as none."
        ),
        "then B circulant": (
            "The part of the Gram matrix B that is not circulant has {lhs} of its norm; up to "
            "{rhs} is taken as none."
        ),
        "then Fourier eigenvectors": (
            "Of the leading eigenvectors, {lhs} lies outside the nearest Fourier pairs; up to "
            "{rhs} is taken as none."
        ),
        "then Vaswani's span": (
            "Of the span of the MDS coordinates, {lhs} lies outside that of sinusoids; up to {rhs} "
            "is taken as none."
        ),
    },
    "Remark 8": {
        "if r < d": "The rank plus 1 is {lhs}, and the width {rhs}.",
        "then exact at r": "MDS of that rank has a stress of {lhs}; up to {rhs} is rounding.",
        "then fewer than n d": "Two factors of that rank have {lhs} numbers, and a table {rhs}.",
        "then minimal": (
            "Two factors of that rank have {lhs} numbers; matrices of that rank have {rhs} degrees "
            "of freedom."
        ),
        "instead fewer by r²": (
            "Matrices of that rank have {lhs} degrees of freedom, and a table {rhs} numbers."
        ),
    },
    "Lemma 11": {
        "if masked loss": _MASKED,
        "if τ < 1": _COLD,
        "if ε_suff": _SUFFICIENT,
        "then (7)": "The worst |E δ_ij − D_KL(μ_i‖μ_j)| is {lhs}; τ² + ε_suff is {rhs}.",
        "then (7) up to a factor": (
            "The best multiple of D_KL leaves {lhs} of δ unexplained; up to {rhs} is taken as none."
        ),
        "instead rows sum to 0": (
            "Rows of E δ sum to {lhs} of what their absolute values sum to; up to {rhs} is "
            "rounding."
        ),
    },
    "Lemma 12": {
        "if masked loss": _MASKED,
        "if attention reads E + p": _READS,
        "if Lemma 11: τ < 1": _COLD,
        "if Lemma 11: ε_suff": _SUFFICIENT,
        "then (A2)": f"{_FORCING}the published C_b is {{rhs}}.",
        "then (A2) with n": f"{_FORCING}n times the published C_b is {{rhs}}.",
        "then D_KL ≤ 2√2 d_H": _DIVERGENCE,
        "then D_KL(i‖k) − D_KL(j‖k) ≤ D_KL(i‖j)": (
            "In the worst triple the left side is {lhs}, and the right side {rhs}."
        ),
        "instead D_KL ≤ g(max μ_i/μ_j) d_H²": (
            "The worst pair has D_KL = {lhs}, and g(max μ_i/μ_j) d_H² = {rhs}."
        ),
        "instead slope in i": (
            "In the worst triple |D_KL(i‖k) − D_KL(j‖k)| is {lhs}, and log(1/m) ‖μ_i − μ_j‖₁ {rhs}."
        ),
        "instead slope in k": (
            "In the worst triple |D_KL(i‖k) − D_KL(i‖l)| is {lhs}, and (2/√m) d_H {rhs}."
        ),
    },
    "Lemma 14": {
        "if attention reads E + p": _READS,
        "if (9)": _FINITE,
        "then (A2)": f"{_FORCING}slopes of E δ in its first argument give {{rhs}} at most.",
        "then (A2) both arguments": f"{_FORCING}slopes in both arguments give {{rhs}} at most.",
        "then (A2) of logits": (
            "Of what reaches b through the first layer's logits, the largest quotient is {lhs}; "
            "slopes in both arguments give {rhs} at most."
        ),
        "instead (A2) of the formula": (
            "Of the lemma's formula for b, the largest quotient is {lhs}; slopes in both arguments "
            "give {rhs} at most."
        ),
    },
    "Corollary 15": {
        "then D_KL ≤ 2√2 d_H": _DIVERGENCE,
        "then L_g ≤ 2√2": "The slope of E δ in its first argument is {lhs}; 2√2 is {rhs}.",
        "then L_g finite": _FINITE,
        "then g symmetric": "E δ_ij and E δ_ji differ by up to {lhs}; up to {rhs} is rounding.",
        "then L_g = 0": (
            "The slope of E δ in its first argument is {lhs}; up to {rhs} is rounding."
        ),
        "then b_i = b_j": "The largest ‖b_i − b_j‖ is {lhs}; up to {rhs} is rounding.",
    },
    "Lemma 16": {
        "if reads [CLS]": "The model is a classifier that reads its first row alone.",
        "if attention reads E + p": _READS,
        "then (10)": "The worst pair has mean embeddings {lhs} apart; L_e d_H is {rhs}.",
        "then (11) of mean logits": (
            "The slope of attention between mean embeddings is {lhs}; L_A is {rhs}."
        ),
        "then (11) of weights": "The slope of mean attention weights is {lhs}; L_A is {rhs}.",
        "then (12)": "The slope of E δ in its first argument is {lhs}; L_g is {rhs}.",
        "instead (10) by the radius": (
            "The worst pair has mean embeddings {lhs} apart; r √(4 − d_H²) d_H is {rhs}."
        ),
        "instead (11) halved": (
            "The slope of attention between mean embeddings is {lhs}; L_A/2 with 2r for L_e is "
            "{rhs}."
        ),
        "instead (12) of one layer": (
            "The slope of E δ in its first argument is {lhs}; G‖W_V‖ 2r/4 over the least d_H is "
            "{rhs}."
        ),
    },
    "Lemma 18": {
        "if A1 increasing": (
            "The best increasing function of d_H explains {rhs} of the variance of α, its diagonal "
            "included; {lhs} is asked."
        ),
        "if A1 diagonal": (
            "The largest α_ii is {lhs} and the smallest α_ij {rhs}; an increasing function of d_H "
            "has the first below the second."
        ),
        "if A1 positive": (
            "The smallest eigenvalue of α is {rhs}; more than {lhs} beyond rounding is asked."
        ),
        "if A2": f"{_FORCING}it has to be finite.",
        "if A3": (
            "A share of {lhs} of the triples of positions has the wrong order of d_H; {rhs} may."
        ),
        "if A4": (
            "A share of {lhs} of b lies outside the range of α; a flow that stays bounded has "
            "{rhs}, and no negative eigenvalue."
        ),
        "then (13)": f"{_ENDS}the right side of (13) is {{rhs}}.",
        "then (13) with n": f"{_ENDS}the right side of (13) with n is {{rhs}}.",
        "then monotone": (
            "A share of {lhs} of the triples of P* has the wrong order; {rhs} is claimed."
        ),
        "instead energy bound": f"{_ENDS}the energy bound is {{rhs}}.",
    },
    "Remark 20": {
        "if f ≥ 0": "The lowest α_ij is {rhs}; down to {lhs} is rounding.",
        "then cooperative": "The highest α_ij is {lhs}; cooperation asks for {rhs} at most.",
    },
}


def sentence(statement: str, claim: str, lhs: str, rhs: str) -> str:
    """The comparison of a claim of a statement, with both sides in words."""
    return _SENTENCES[statement][claim].format(lhs=lhs, rhs=rhs)
