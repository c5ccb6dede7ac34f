"""Programs of ``torch.export`` as functions of arrays: graphs, and a function for each operator."""
