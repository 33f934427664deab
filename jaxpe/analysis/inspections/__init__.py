"""Inspections of several models: key measures, their usual range, and comparison.

one, other = (key_measures(inspect_model(options)) for options in both)
rich.print(jaxpe.report.inspections_table(compare_inspections([one, other])))
"""

from jaxpe.analysis.inspections.measures import (
    MEASURES,
    InspectionComparison,
    Measure,
    ModelMeasures,
    UsualRange,
    compare_inspections,
    inspected_models,
    key_measures,
    text_reach,
    usual_range,
)

__all__ = [
    "MEASURES", "InspectionComparison", "Measure", "ModelMeasures", "UsualRange",
    "compare_inspections", "inspected_models", "key_measures", "text_reach", "usual_range",
]  # fmt: skip
