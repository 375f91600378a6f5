"""Stub for PyTorch, which is gigabytes large and is needed only to load a model. The reranking provider imports it and decorates one
method with `no_grad` at server start; any other use fails with an AttributeError."""


def no_grad():
    return lambda function: function
