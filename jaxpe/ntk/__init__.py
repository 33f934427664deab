"""The neural tangent kernel: linearised models, empirical kernels, and how they train."""

from jaxpe.ntk.cost import NtkCost as NtkCost
from jaxpe.ntk.cost import ntk_costs as ntk_costs
from jaxpe.ntk.flow import FixedPoint as FixedPoint
from jaxpe.ntk.flow import GradientFlow as GradientFlow
from jaxpe.ntk.flow import TrainingGap as TrainingGap
from jaxpe.ntk.flow import gradient_flow as gradient_flow
from jaxpe.ntk.flow import linearised_training as linearised_training
from jaxpe.ntk.flow import solve_flow as solve_flow
from jaxpe.ntk.kernel import empirical_ntk as empirical_ntk
from jaxpe.ntk.linear import linearize as linearize
from jaxpe.ntk.linear import taylor_expand as taylor_expand
from jaxpe.ntk.positional import positional_fisher as positional_fisher
from jaxpe.ntk.positional import positional_forcing as positional_forcing
from jaxpe.ntk.positional import positional_ntk as positional_ntk
from jaxpe.ntk.positional import positional_ntk_probes as positional_ntk_probes
from jaxpe.ntk.positional import positional_ntk_product as positional_ntk_product
from jaxpe.ntk.predict import MsePrediction as MsePrediction
from jaxpe.ntk.predict import max_learning_rate as max_learning_rate
from jaxpe.ntk.predict import predict_mse as predict_mse
from jaxpe.ntk.products import Lanczos as Lanczos
from jaxpe.ntk.products import lanczos_eigenvalues as lanczos_eigenvalues
from jaxpe.ntk.products import ntk_vector_product as ntk_vector_product
from jaxpe.ntk.sensitivity import parameter_sensitivity as parameter_sensitivity
