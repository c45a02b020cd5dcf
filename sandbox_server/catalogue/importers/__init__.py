"""One module per family of data sets, each with its IMPORTER."""
