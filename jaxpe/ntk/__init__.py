"""The neural tangent kernel: linearised models, empirical kernels, and their training."""

from jaxpe.ntk.flow import gradient_flow, linearised_training, solve_flow
from jaxpe.ntk.kernel import empirical_ntk
from jaxpe.ntk.linear import linearize, taylor_expand
from jaxpe.ntk.positional import (
    positional_fisher,
    positional_forcing,
    positional_ntk,
    positional_ntk_product,
)
from jaxpe.ntk.predict import max_learning_rate, predict_mse
from jaxpe.ntk.products import lanczos_eigenvalues, ntk_vector_product
from jaxpe.ntk.sensitivity import parameter_sensitivity

__all__ = [
    "empirical_ntk", "gradient_flow", "lanczos_eigenvalues", "linearised_training", "linearize",
    "max_learning_rate", "ntk_vector_product", "parameter_sensitivity", "positional_fisher",
    "positional_forcing", "positional_ntk", "positional_ntk_product", "predict_mse",
    "solve_flow", "taylor_expand",
]  # fmt: skip
