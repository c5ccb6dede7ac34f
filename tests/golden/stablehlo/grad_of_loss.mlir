module @jit_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<3x3xf32> {
    %0 = call @product(%arg1, %arg0) : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.tanh %0 : tensor<2x3xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<2x3xf32>
    %2 = stablehlo.add %1, %cst : tensor<2x3xf32>
    %3 = stablehlo.subtract %cst, %1 : tensor<2x3xf32>
    %4 = stablehlo.multiply %2, %3 : tensor<2x3xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %6 = stablehlo.multiply %1, %5 : tensor<2x3xf32>
    %7 = stablehlo.multiply %5, %1 : tensor<2x3xf32>
    %8 = stablehlo.add %6, %7 : tensor<2x3xf32>
    %9 = stablehlo.multiply %8, %4 : tensor<2x3xf32>
    %10 = call @product_1(%arg1, %9) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<3x3xf32>
    return %10 : tensor<3x3xf32>
  }
  func.func private @product(%arg0: tensor<2x3xf32>, %arg1: tensor<3x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x3xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<3x3xf32>) -> tensor<2x3x3xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<2x3x3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<2x3x3xf32>, tensor<f32>) -> tensor<2x3xf32>
    return %3 : tensor<2x3xf32>
  }
  func.func private @product_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<3x3xf32> {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<3x2xf32>) -> tensor<3x2x3xf32>
    %2 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<2x3xf32>) -> tensor<3x2x3xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<3x2x3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<3x2x3xf32>, tensor<f32>) -> tensor<3x3xf32>
    return %4 : tensor<3x3xf32>
  }
}
