module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3xf32>, %arg1: tensor<2x2x3xf32>) -> tensor<2x3x3xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [0, 1, 2] : (tensor<2x2x3xf32>) -> tensor<2x2x3x3xf32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [2, 3] : (tensor<3x3xf32>) -> tensor<2x2x3x3xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<2x2x3x3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x2x3x3xf32>, tensor<f32>) -> tensor<2x2x3xf32>
    %4 = stablehlo.tanh %3 : tensor<2x2x3xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<2x2x3xf32>
    %5 = stablehlo.add %4, %cst_0 : tensor<2x2x3xf32>
    %6 = stablehlo.subtract %cst_0, %4 : tensor<2x2x3xf32>
    %7 = stablehlo.multiply %5, %6 : tensor<2x2x3xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x2x3xf32>
    %10 = stablehlo.multiply %4, %9 : tensor<2x2x3xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x2x3xf32>
    %12 = stablehlo.multiply %11, %4 : tensor<2x2x3xf32>
    %13 = stablehlo.add %10, %12 : tensor<2x2x3xf32>
    %14 = stablehlo.multiply %13, %7 : tensor<2x2x3xf32>
    %15 = stablehlo.transpose %arg1, dims = [1, 2, 0] : (tensor<2x2x3xf32>) -> tensor<2x3x2xf32>
    %16 = stablehlo.transpose %14, dims = [1, 0, 2] : (tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
    %17 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<2x3x2xf32>) -> tensor<2x3x2x3xf32>
    %18 = stablehlo.broadcast_in_dim %16, dims = [0, 2, 3] : (tensor<2x2x3xf32>) -> tensor<2x3x2x3xf32>
    %19 = stablehlo.multiply %17, %18 : tensor<2x3x2x3xf32>
    %20 = stablehlo.reduce(%19 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x3x2x3xf32>, tensor<f32>) -> tensor<2x3x3xf32>
    return %20 : tensor<2x3x3xf32>
  }
}
