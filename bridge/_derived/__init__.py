"""Programs derived from functions of flat tensors, for all frameworks: derivatives, residuals."""
