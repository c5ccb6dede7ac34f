module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<3x3xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x3xf32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : (tensor<3x3xf32>) -> tensor<2x3x3xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<2x3x3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<2x3x3xf32>, tensor<f32>) -> tensor<2x3xf32>
    %4 = stablehlo.tanh %3 : tensor<2x3xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<2x3xf32>
    %5 = stablehlo.add %4, %cst_0 : tensor<2x3xf32>
    %6 = stablehlo.subtract %cst_0, %4 : tensor<2x3xf32>
    %7 = stablehlo.multiply %5, %6 : tensor<2x3xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %9 = stablehlo.multiply %4, %8 : tensor<2x3xf32>
    %10 = stablehlo.multiply %8, %4 : tensor<2x3xf32>
    %11 = stablehlo.add %9, %10 : tensor<2x3xf32>
    %12 = stablehlo.multiply %11, %7 : tensor<2x3xf32>
    %13 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1] : (tensor<3x2xf32>) -> tensor<3x2x3xf32>
    %15 = stablehlo.broadcast_in_dim %12, dims = [1, 2] : (tensor<2x3xf32>) -> tensor<3x2x3xf32>
    %16 = stablehlo.multiply %14, %15 : tensor<3x2x3xf32>
    %17 = stablehlo.reduce(%16 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<3x2x3xf32>, tensor<f32>) -> tensor<3x3xf32>
    return %17 : tensor<3x3xf32>
  }
}
