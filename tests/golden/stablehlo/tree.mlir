module @jit_tree attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<i32>) {
    %0 = stablehlo.add %arg0, %arg1 : tensor<2x3xf32>
    %c = stablehlo.constant dense<3> : tensor<i32>
    return %0, %c : tensor<2x3xf32>, tensor<i32>
  }
}
