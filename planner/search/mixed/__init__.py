"""The search over clusters of several device groups: where the pipeline lies, and every mesh there, one certificate."""
