"""The report: what a corpus says about position, as numbers, words, figures and a page.

Plotting, tables and templates come with the extra `report` and are imported only when used.
"""

from jaxpe.report.attention.page import spectral_json as spectral_json
from jaxpe.report.attention.page import spectral_table as spectral_table
from jaxpe.report.attention.page import write_spectral as write_spectral
from jaxpe.report.audit import audit_json as audit_json
from jaxpe.report.audit import audit_table as audit_table
from jaxpe.report.audit import write_audit as write_audit
from jaxpe.report.catalogue import catalogue_json as catalogue_json
from jaxpe.report.catalogue import catalogue_markdown as catalogue_markdown
from jaxpe.report.catalogue import catalogue_table as catalogue_table
from jaxpe.report.corpus.findings import findings as findings
from jaxpe.report.corpus.page import write_report as write_report
from jaxpe.report.encodings import property_json as property_json
from jaxpe.report.encodings import property_markdown as property_markdown
from jaxpe.report.encodings import property_table as property_table
from jaxpe.report.extrapolation.page import extrapolation_json as extrapolation_json
from jaxpe.report.extrapolation.page import extrapolation_table as extrapolation_table
from jaxpe.report.extrapolation.page import write_extrapolation as write_extrapolation
from jaxpe.report.tables import counts_table as counts_table
from jaxpe.report.tables import encoding_table as encoding_table
from jaxpe.report.tables import summary_table as summary_table
from jaxpe.report.training import pace as pace
from jaxpe.report.training import training_table as training_table
from jaxpe.report.training import write_training_figures as write_training_figures
