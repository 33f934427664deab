"""The report: what a corpus says about position, as numbers, words, figures and a page.

Plotting, tables and templates come with the extra `report` and are imported only when used.
"""

from jaxpe.report._analyse import analyse as analyse
from jaxpe.report._analyse import analyse_counts as analyse_counts
from jaxpe.report._analyse import check_options as check_options
from jaxpe.report._audit import Audited as Audited
from jaxpe.report._audit import AuditReport as AuditReport
from jaxpe.report._audit import KernelPairs as KernelPairs
from jaxpe.report._audit import Training as Training
from jaxpe.report._audit import audit_json as audit_json
from jaxpe.report._audit import audit_table as audit_table
from jaxpe.report._audit import write_audit as write_audit
from jaxpe.report._encodings import catalogue_json as catalogue_json
from jaxpe.report._encodings import catalogue_markdown as catalogue_markdown
from jaxpe.report._encodings import catalogue_table as catalogue_table
from jaxpe.report._encodings import check_sizes as check_sizes
from jaxpe.report._extrapolation import extrapolation_json as extrapolation_json
from jaxpe.report._extrapolation import extrapolation_table as extrapolation_table
from jaxpe.report._extrapolation import write_extrapolation as write_extrapolation
from jaxpe.report._extrapolation_report import ExtrapolationCell as ExtrapolationCell
from jaxpe.report._extrapolation_report import ExtrapolationReport as ExtrapolationReport
from jaxpe.report._extrapolation_report import mean_reciprocal_rank as mean_reciprocal_rank
from jaxpe.report._extrapolation_report import reciprocal_ranks as reciprocal_ranks
from jaxpe.report._extrapolation_report import summary as summary
from jaxpe.report._findings import findings as findings
from jaxpe.report._property_tables import About as About
from jaxpe.report._property_tables import property_json as property_json
from jaxpe.report._property_tables import property_markdown as property_markdown
from jaxpe.report._property_tables import property_rows as property_rows
from jaxpe.report._property_tables import property_table as property_table
from jaxpe.report._spectral import spectral_json as spectral_json
from jaxpe.report._spectral import spectral_table as spectral_table
from jaxpe.report._spectral import write_spectral as write_spectral
from jaxpe.report._spectral_report import HeadDrops as HeadDrops
from jaxpe.report._spectral_report import MeanLogits as MeanLogits
from jaxpe.report._spectral_report import Pairs as Pairs
from jaxpe.report._spectral_report import PartShares as PartShares
from jaxpe.report._spectral_report import SpectralReport as SpectralReport
from jaxpe.report._spectral_report import Variance as Variance
from jaxpe.report._table import counts_table as counts_table
from jaxpe.report._table import encoding_table as encoding_table
from jaxpe.report._table import summary_table as summary_table
from jaxpe.report._training import pace as pace
from jaxpe.report._training import training_table as training_table
from jaxpe.report._training import write_training_figures as write_training_figures
from jaxpe.report._write import output_folder as output_folder
from jaxpe.report._write import write_report as write_report
from jaxpe.report.analysis import Analysis as Analysis
from jaxpe.report.analysis import EncodingScore as EncodingScore
from jaxpe.report.analysis import Interval as Interval
