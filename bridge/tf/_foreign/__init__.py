"""TensorFlow functions as operations of traced code: what ``call_tf`` is made of."""
