"""One file a family of data sets, each with its IMPORTER."""
