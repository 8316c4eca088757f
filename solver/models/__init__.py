"""Models as data: columns, rows, blocks and names; files and other modelling layers."""
