"""One nn.Module per operator family of cost_models.operators."""
