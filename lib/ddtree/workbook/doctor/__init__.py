"""`ddtree doctor`: whether this machine has the packages, models, memory and folders that the workbook needs."""
