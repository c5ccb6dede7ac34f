"""The discrete Fourier transform as a primitive."""
