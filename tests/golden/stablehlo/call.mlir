module @jit__lambda_ attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = call @chain(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = call @chain(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
  func.func private @chain(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.negate %arg0 : tensor<2x3xf32>
    %1 = stablehlo.exponential %0 : tensor<2x3xf32>
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<2x3xf32>
    %2 = stablehlo.multiply %1, %cst : tensor<2x3xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<2x3xf32>
    %3 = stablehlo.add %arg0, %cst_0 : tensor<2x3xf32>
    %4 = stablehlo.log %3 : tensor<2x3xf32>
    %5 = stablehlo.subtract %2, %4 : tensor<2x3xf32>
    return %5 : tensor<2x3xf32>
  }
}
