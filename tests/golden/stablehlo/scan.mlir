module @jit_counted attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<3xf32>, tensor<2x3xf32>) {
    %0 = stablehlo.slice %arg0 [0:1, 0:3] : (tensor<2x3xf32>) -> tensor<1x3xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x3xf32>) -> tensor<3xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<2x3xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %2:3 = stablehlo.while(%iterArg = %c, %iterArg_0 = %1, %iterArg_1 = %cst) : tensor<i32>, tensor<3xf32>, tensor<2x3xf32>
    cond {
      %c_2 = stablehlo.constant dense<2> : tensor<i32>
      %3 = stablehlo.compare LT, %iterArg, %c_2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %3 = stablehlo.dynamic_slice %arg0, %iterArg, %c_2, sizes = [1, 3] : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %4 = stablehlo.reshape %3 : (tensor<1x3xf32>) -> tensor<3xf32>
      %5 = stablehlo.add %iterArg_0, %4 : tensor<3xf32>
      %cst_3 = stablehlo.constant dense<2.000000e+00> : tensor<3xf32>
      %6 = stablehlo.multiply %iterArg_0, %cst_3 : tensor<3xf32>
      %7 = stablehlo.reshape %6 : (tensor<3xf32>) -> tensor<1x3xf32>
      %8 = stablehlo.dynamic_update_slice %iterArg_1, %7, %iterArg, %c_2 : (tensor<2x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
      %c_4 = stablehlo.constant dense<1> : tensor<i32>
      %9 = stablehlo.add %iterArg, %c_4 : tensor<i32>
      stablehlo.return %9, %5, %8 : tensor<i32>, tensor<3xf32>, tensor<2x3xf32>
    }
    return %2#1, %2#2 : tensor<3xf32>, tensor<2x3xf32>
  }
}
