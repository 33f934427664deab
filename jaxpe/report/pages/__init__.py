"""Pages of results, one module a job; `jaxpe.report.page` imports the one it needs."""
