"""The NumPy API on engine arrays."""

from __future__ import annotations

import numpy as _np

from tracebridge.numpy.creation import arange as arange
from tracebridge.numpy.creation import array as array
from tracebridge.numpy.creation import asarray as asarray
from tracebridge.numpy.creation import astype as astype
from tracebridge.numpy.creation import copy as copy
from tracebridge.numpy.creation import empty as empty
from tracebridge.numpy.creation import empty_like as empty_like
from tracebridge.numpy.creation import eye as eye
from tracebridge.numpy.creation import full as full
from tracebridge.numpy.creation import full_like as full_like
from tracebridge.numpy.creation import identity as identity
from tracebridge.numpy.creation import linspace as linspace
from tracebridge.numpy.creation import ones as ones
from tracebridge.numpy.creation import ones_like as ones_like
from tracebridge.numpy.creation import zeros as zeros
from tracebridge.numpy.creation import zeros_like as zeros_like
from tracebridge.numpy.cumulative import cumprod as cumprod
from tracebridge.numpy.cumulative import cumsum as cumsum
from tracebridge.numpy.cumulative import cumulative_prod as cumulative_prod
from tracebridge.numpy.cumulative import cumulative_sum as cumulative_sum
from tracebridge.numpy.cumulative import diff as diff
from tracebridge.numpy.cumulative import ediff1d as ediff1d
from tracebridge.numpy.cumulative import gradient as gradient
from tracebridge.numpy.cumulative import nancumprod as nancumprod
from tracebridge.numpy.cumulative import nancumsum as nancumsum
from tracebridge.numpy.cumulative import trapezoid as trapezoid
from tracebridge.numpy.cumulative import unwrap as unwrap
from tracebridge.numpy.einsum import einsum as einsum
from tracebridge.numpy.einsum import einsum_path as einsum_path
from tracebridge.numpy.elementwise_exp_trig import acos as acos
from tracebridge.numpy.elementwise_exp_trig import acosh as acosh
from tracebridge.numpy.elementwise_exp_trig import arccos as arccos
from tracebridge.numpy.elementwise_exp_trig import arccosh as arccosh
from tracebridge.numpy.elementwise_exp_trig import arcsin as arcsin
from tracebridge.numpy.elementwise_exp_trig import arcsinh as arcsinh
from tracebridge.numpy.elementwise_exp_trig import arctan as arctan
from tracebridge.numpy.elementwise_exp_trig import arctanh as arctanh
from tracebridge.numpy.elementwise_exp_trig import asin as asin
from tracebridge.numpy.elementwise_exp_trig import asinh as asinh
from tracebridge.numpy.elementwise_exp_trig import atan as atan
from tracebridge.numpy.elementwise_exp_trig import atanh as atanh
from tracebridge.numpy.elementwise_exp_trig import cbrt as cbrt
from tracebridge.numpy.elementwise_exp_trig import cos as cos
from tracebridge.numpy.elementwise_exp_trig import cosh as cosh
from tracebridge.numpy.elementwise_exp_trig import deg2rad as deg2rad
from tracebridge.numpy.elementwise_exp_trig import degrees as degrees
from tracebridge.numpy.elementwise_exp_trig import exp as exp
from tracebridge.numpy.elementwise_exp_trig import exp2 as exp2
from tracebridge.numpy.elementwise_exp_trig import expm1 as expm1
from tracebridge.numpy.elementwise_exp_trig import log as log
from tracebridge.numpy.elementwise_exp_trig import log10 as log10
from tracebridge.numpy.elementwise_exp_trig import log1p as log1p
from tracebridge.numpy.elementwise_exp_trig import log2 as log2
from tracebridge.numpy.elementwise_exp_trig import rad2deg as rad2deg
from tracebridge.numpy.elementwise_exp_trig import radians as radians
from tracebridge.numpy.elementwise_exp_trig import sin as sin
from tracebridge.numpy.elementwise_exp_trig import sinh as sinh
from tracebridge.numpy.elementwise_exp_trig import sqrt as sqrt
from tracebridge.numpy.elementwise_exp_trig import tan as tan
from tracebridge.numpy.elementwise_exp_trig import tanh as tanh
from tracebridge.numpy.elementwise_float import copysign as copysign
from tracebridge.numpy.elementwise_float import frexp as frexp
from tracebridge.numpy.elementwise_float import isneginf as isneginf
from tracebridge.numpy.elementwise_float import isposinf as isposinf
from tracebridge.numpy.elementwise_float import ldexp as ldexp
from tracebridge.numpy.elementwise_float import modf as modf
from tracebridge.numpy.elementwise_float import nan_to_num as nan_to_num
from tracebridge.numpy.elementwise_float import nextafter as nextafter
from tracebridge.numpy.elementwise_float import signbit as signbit
from tracebridge.numpy.elementwise_float import spacing as spacing
from tracebridge.numpy.elementwise_logic import allclose as allclose
from tracebridge.numpy.elementwise_logic import array_equal as array_equal
from tracebridge.numpy.elementwise_logic import array_equiv as array_equiv
from tracebridge.numpy.elementwise_logic import bitwise_and as bitwise_and
from tracebridge.numpy.elementwise_logic import bitwise_count as bitwise_count
from tracebridge.numpy.elementwise_logic import bitwise_invert as bitwise_invert
from tracebridge.numpy.elementwise_logic import bitwise_left_shift as bitwise_left_shift
from tracebridge.numpy.elementwise_logic import bitwise_not as bitwise_not
from tracebridge.numpy.elementwise_logic import bitwise_or as bitwise_or
from tracebridge.numpy.elementwise_logic import bitwise_right_shift as bitwise_right_shift
from tracebridge.numpy.elementwise_logic import bitwise_xor as bitwise_xor
from tracebridge.numpy.elementwise_logic import equal as equal
from tracebridge.numpy.elementwise_logic import greater as greater
from tracebridge.numpy.elementwise_logic import greater_equal as greater_equal
from tracebridge.numpy.elementwise_logic import invert as invert
from tracebridge.numpy.elementwise_logic import isclose as isclose
from tracebridge.numpy.elementwise_logic import iscomplex as iscomplex
from tracebridge.numpy.elementwise_logic import iscomplexobj as iscomplexobj
from tracebridge.numpy.elementwise_logic import isfinite as isfinite
from tracebridge.numpy.elementwise_logic import isinf as isinf
from tracebridge.numpy.elementwise_logic import isnan as isnan
from tracebridge.numpy.elementwise_logic import isreal as isreal
from tracebridge.numpy.elementwise_logic import isrealobj as isrealobj
from tracebridge.numpy.elementwise_logic import isscalar as isscalar
from tracebridge.numpy.elementwise_logic import left_shift as left_shift
from tracebridge.numpy.elementwise_logic import less as less
from tracebridge.numpy.elementwise_logic import less_equal as less_equal
from tracebridge.numpy.elementwise_logic import logical_and as logical_and
from tracebridge.numpy.elementwise_logic import logical_not as logical_not
from tracebridge.numpy.elementwise_logic import logical_or as logical_or
from tracebridge.numpy.elementwise_logic import logical_xor as logical_xor
from tracebridge.numpy.elementwise_logic import not_equal as not_equal
from tracebridge.numpy.elementwise_logic import right_shift as right_shift
from tracebridge.numpy.elementwise_math import abs as abs
from tracebridge.numpy.elementwise_math import absolute as absolute
from tracebridge.numpy.elementwise_math import add as add
from tracebridge.numpy.elementwise_math import angle as angle
from tracebridge.numpy.elementwise_math import arctan2 as arctan2
from tracebridge.numpy.elementwise_math import atan2 as atan2
from tracebridge.numpy.elementwise_math import clip as clip
from tracebridge.numpy.elementwise_math import conj as conj
from tracebridge.numpy.elementwise_math import conjugate as conjugate
from tracebridge.numpy.elementwise_math import divide as divide
from tracebridge.numpy.elementwise_math import divmod as divmod
from tracebridge.numpy.elementwise_math import fabs as fabs
from tracebridge.numpy.elementwise_math import float_power as float_power
from tracebridge.numpy.elementwise_math import floor_divide as floor_divide
from tracebridge.numpy.elementwise_math import fmax as fmax
from tracebridge.numpy.elementwise_math import fmin as fmin
from tracebridge.numpy.elementwise_math import fmod as fmod
from tracebridge.numpy.elementwise_math import heaviside as heaviside
from tracebridge.numpy.elementwise_math import hypot as hypot
from tracebridge.numpy.elementwise_math import imag as imag
from tracebridge.numpy.elementwise_math import logaddexp as logaddexp
from tracebridge.numpy.elementwise_math import logaddexp2 as logaddexp2
from tracebridge.numpy.elementwise_math import maximum as maximum
from tracebridge.numpy.elementwise_math import minimum as minimum
from tracebridge.numpy.elementwise_math import mod as mod
from tracebridge.numpy.elementwise_math import multiply as multiply
from tracebridge.numpy.elementwise_math import negative as negative
from tracebridge.numpy.elementwise_math import positive as positive
from tracebridge.numpy.elementwise_math import pow as pow
from tracebridge.numpy.elementwise_math import power as power
from tracebridge.numpy.elementwise_math import real as real
from tracebridge.numpy.elementwise_math import reciprocal as reciprocal
from tracebridge.numpy.elementwise_math import remainder as remainder
from tracebridge.numpy.elementwise_math import sign as sign
from tracebridge.numpy.elementwise_math import square as square
from tracebridge.numpy.elementwise_math import subtract as subtract
from tracebridge.numpy.elementwise_math import true_divide as true_divide
from tracebridge.numpy.elementwise_round import around as around
from tracebridge.numpy.elementwise_round import ceil as ceil
from tracebridge.numpy.elementwise_round import fix as fix
from tracebridge.numpy.elementwise_round import floor as floor
from tracebridge.numpy.elementwise_round import rint as rint
from tracebridge.numpy.elementwise_round import round as round
from tracebridge.numpy.elementwise_round import trunc as trunc
from tracebridge.numpy.joining import append as append
from tracebridge.numpy.joining import array_split as array_split
from tracebridge.numpy.joining import block as block
from tracebridge.numpy.joining import column_stack as column_stack
from tracebridge.numpy.joining import concat as concat
from tracebridge.numpy.joining import concatenate as concatenate
from tracebridge.numpy.joining import dsplit as dsplit
from tracebridge.numpy.joining import dstack as dstack
from tracebridge.numpy.joining import hsplit as hsplit
from tracebridge.numpy.joining import hstack as hstack
from tracebridge.numpy.joining import split as split
from tracebridge.numpy.joining import stack as stack
from tracebridge.numpy.joining import unstack as unstack
from tracebridge.numpy.joining import vsplit as vsplit
from tracebridge.numpy.joining import vstack as vstack
from tracebridge.numpy.linear_products import dot as dot
from tracebridge.numpy.linear_products import inner as inner
from tracebridge.numpy.linear_products import matmul as matmul
from tracebridge.numpy.linear_products import outer as outer
from tracebridge.numpy.linear_products import tensordot as tensordot
from tracebridge.numpy.linear_products import vdot as vdot
from tracebridge.numpy.manipulation import atleast_1d as atleast_1d
from tracebridge.numpy.manipulation import atleast_2d as atleast_2d
from tracebridge.numpy.manipulation import atleast_3d as atleast_3d
from tracebridge.numpy.manipulation import broadcast_arrays as broadcast_arrays
from tracebridge.numpy.manipulation import broadcast_shapes as broadcast_shapes
from tracebridge.numpy.manipulation import broadcast_to as broadcast_to
from tracebridge.numpy.manipulation import expand_dims as expand_dims
from tracebridge.numpy.manipulation import flip as flip
from tracebridge.numpy.manipulation import fliplr as fliplr
from tracebridge.numpy.manipulation import flipud as flipud
from tracebridge.numpy.manipulation import matrix_transpose as matrix_transpose
from tracebridge.numpy.manipulation import moveaxis as moveaxis
from tracebridge.numpy.manipulation import permute_dims as permute_dims
from tracebridge.numpy.manipulation import ravel as ravel
from tracebridge.numpy.manipulation import reshape as reshape
from tracebridge.numpy.manipulation import roll as roll
from tracebridge.numpy.manipulation import rot90 as rot90
from tracebridge.numpy.manipulation import squeeze as squeeze
from tracebridge.numpy.manipulation import swapaxes as swapaxes
from tracebridge.numpy.manipulation import tile as tile
from tracebridge.numpy.manipulation import transpose as transpose
from tracebridge.numpy.reductions import all as all
from tracebridge.numpy.reductions import amax as amax
from tracebridge.numpy.reductions import amin as amin
from tracebridge.numpy.reductions import any as any
from tracebridge.numpy.reductions import count_nonzero as count_nonzero
from tracebridge.numpy.reductions import max as max
from tracebridge.numpy.reductions import mean as mean
from tracebridge.numpy.reductions import min as min
from tracebridge.numpy.reductions import prod as prod
from tracebridge.numpy.reductions import ptp as ptp
from tracebridge.numpy.reductions import std as std
from tracebridge.numpy.reductions import sum as sum
from tracebridge.numpy.reductions import var as var
from tracebridge.numpy.searching import argmax as argmax
from tracebridge.numpy.searching import argmin as argmin
from tracebridge.numpy.searching import argwhere as argwhere
from tracebridge.numpy.searching import flatnonzero as flatnonzero
from tracebridge.numpy.searching import nanargmax as nanargmax
from tracebridge.numpy.searching import nanargmin as nanargmin
from tracebridge.numpy.searching import nonzero as nonzero
from tracebridge.numpy.searching import searchsorted as searchsorted
from tracebridge.numpy.searching import where as where

pi = _np.pi
e = _np.e
inf = _np.inf
nan = _np.nan
newaxis = None
bool_ = _np.bool_
int8 = _np.int8
int16 = _np.int16
int32 = _np.int32
int64 = _np.int64
uint8 = _np.uint8
uint16 = _np.uint16
uint32 = _np.uint32
uint64 = _np.uint64
float16 = _np.float16
float32 = _np.float32
float64 = _np.float64
complex64 = _np.complex64
complex128 = _np.complex128
