//! Names as they are in stacks.

use super::Class::*;
use super::*;

#[test]
fn kernels_are_told_by_their_names() {
    for (name, class) in [
        ("gemv_q8_0_avx2", Quantized),
        ("gemm_q4_k", Quantized),
        ("gemv_q4_k_avx2", Quantized),
        ("embed_q8_0_scalar", Quantized),
        ("gemv_iq4_xs_avx2", Quantized),
        ("gemm_tq1_0", Quantized),
        ("gemv_tq2_0_avx2", Quantized),
        ("gemv_i2_s", Quantized),
        ("gemv_mxfp4_avx2", Quantized),
        ("mul_mat_vec_q", Quantized),
        ("gemv_f32_avx2", Matmul),
        ("gemm_f16", Matmul),
        ("matmul_bf16", Matmul),
        ("ampere_sgemm_128x64_tn", Matmul),
        ("memcpy_h2d", Memory),
        ("embed_f32_scalar", Other),
        ("rms_norm_avx2", Other),
        ("attention_scores_avx2", Other),
        ("softmax", Other),
        ("share of thread 1", Other),
        ("", Other),
    ] {
        assert_eq!(Class::of_kernel(name), class, "{name}");
    }
}

#[test]
fn bricks_tell_what_a_kernel_with_a_name_of_no_words_does() {
    for (brick, class) in [
        ("MatMul", Matmul),
        ("LmHead", Matmul),
        ("Copy", Memory),
        ("RmsNorm", Other),
        ("AllReduce", Other),
    ] {
        assert_eq!(Class::of_brick(brick), class, "{brick}");
    }
}

#[test]
fn functions_are_told_by_their_names() {
    for (name, class) in [
        ("brickscope_kernels::gemv::q8_0::avx2::dot", Quantized),
        ("brickscope_kernels::gemv::q8_0::rows::{{closure}}", Quantized),
        ("<brickscope_kernels::gemv::q4_k::Q4K as Rows>::dot", Quantized),
        ("ggml_vec_dot_q4_K_q8_K", Quantized),
        ("ggml_gemv_q4_0_8x8_q8_0", Quantized),
        ("quantize_row_q8_0", Quantized),
        ("dequantize_row_iq4_xs", Quantized),
        ("ggml_vec_dot_iq2_xxs_q8_K", Quantized),
        ("ggml_vec_dot_i2_i8_s", Quantized),
        ("ggml_vec_dot_tq1_0_q8_K", Quantized),
        ("ggml_vec_dot_mxfp4_q8_0", Quantized),
        (
            "(anonymous namespace)::tinyBLAS_Q0_AVX<block_q8_0, block_q8_0, float>::gemm4xN",
            Quantized,
        ),
        ("void ggml::cpu::repack::gemm4xN<(ggml_type)2>(int, float*, block_q8_0 const*)", Matmul),
        ("candle_core::quantized::k_quants::<impl GgmlType for BlockQ4K>::vec_dot", Quantized),
        (
            "<candle_core::quantized::k_quants::BlockQ4_0 as \
             candle_core::quantized::k_quants::GgmlType>::vec_dot",
            Quantized,
        ),
        ("candle_core::quantized::avx::vec_dot_q8_0_q8_0", Quantized),
        ("void ggml::cpu::repack::gemm<block_mxfp4, 8l, 8l, (ggml_type)8>(int, float*)", Quantized),
        (
            "void ggml_compute_forward_mul_mat_tiled_driver<block_iq1_m, 16, false>(int) [clone .cold]",
            Quantized,
        ),
        ("brickscope_kernels::gemv::avx2::gemv_rows<brickscope_kernels::quant::Q8_0>", Quantized),
        ("qgemm_lut_3200_8640", Quantized),
        ("gemm_q4_b32_8x8_q8_0_lut_avx", Quantized),
        ("kernel_mul_mv_q4_K_f32", Quantized),
        ("candle_core::quantized::QMatMul::forward", Quantized),
        ("ggml_vec_dot_f16", Matmul),
        ("ggml_vec_dot_f32", Matmul),
        ("ggml_vec_dot_bf16", Matmul),
        ("ggml_compute_forward_mul_mat", Matmul),
        ("(anonymous namespace)::tinyBLAS<8, __m256, __m256, float, float, float>::gemm", Matmul),
        ("llamafile_sgemm", Matmul),
        ("gemm_f32", Matmul),
        ("cblas_sgemm", Matmul),
        ("sgemm_kernel_HASWELL", Matmul),
        ("gemm_f32::microkernel::fma::f32::x1x4", Matmul),
        ("candle_core::cpu_backend::MatMul::f", Matmul),
        ("faer::linalg::matmul::matmul", Matmul),
        ("memcpy", Memory),
        ("memcpy@plt", Memory),
        ("__memmove_avx_unaligned_erms", Memory),
        ("__memset_avx2_unaligned_erms", Memory),
        ("malloc", Memory),
        ("free", Memory),
        ("cfree@GLIBC_2.2.5", Memory),
        ("_int_malloc", Memory),
        ("realloc", Memory),
        ("__rust_alloc_zeroed", Memory),
        ("alloc::alloc::alloc_zeroed", Memory),
        ("alloc::raw_vec::RawVec<T,A>::grow_one", Memory),
        ("operator new(unsigned long)", Memory),
        ("madvise", Memory),
        ("__mmap64", Memory),
        ("memmap2::unix::MmapInner::new", Memory),
        ("core::ptr::copy_nonoverlapping", Other),
        ("syscall", System),
        ("futex_wait", System),
        ("__sched_yield", System),
        ("__x64_sys_sched_yield", System),
        ("entry_SYSCALL_64_after_hwframe", System),
        ("main", Other),
        ("", Other),
    ] {
        assert_eq!(Class::of_function(name, None, false), class, "{name}");
    }
}

#[test]
fn pieces_of_words_and_what_types_stand_for_decide_nothing() {
    for name in [
        "memory_bound_analysis",
        "quantile",
        "stats::quantiles",
        "quantity",
        "Freedom",
        "freeze",
        "Pool::free",
        "ggml_free",
        "q_proj",
        "seq_0",
        "h2o_4_k",
        "iq_test",
        "blasphemy",
        "mallow",
        "callocate",
        "clone3",
        "start_thread",
        "rms_norm_f32",
        "read",
        "app::read",
        "gemmology",
        "resyscall",
        "candle_core::quantized::gguf_file::Content::read",
        // Each of them is under all that a thread does.
        "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
        "std::sys::backtrace::__rust_begin_short_backtrace::<brickscope_kernels::gemv::q8_0::run>",
        "core::ops::function::FnOnce::call_once{{vtable.shim}}",
        "void std::sort<float*, gemm_q4_k>(float*, gemm_q4_k*)",
        "std::thread::spawn<sgemm>",
    ] {
        assert_eq!(Class::of_function(name, None, false), Other, "{name}");
    }
}

#[test]
fn a_name_that_programs_use_too_is_a_call_where_it_is_of_libc() {
    let of = |name, module| Class::of_function(name, Some(module), false);
    assert_eq!(of("read", "/usr/lib/x86_64-linux-gnu/libc.so.6"), System);
    assert_eq!(of("__GI___ioctl", "/lib/libc.so.6"), Other);
    assert_eq!(of("__ioctl", "/lib/libc.so.6"), System);
    assert_eq!(of("__libc_write", "libc-2.31.so"), System);
    assert_eq!(of("__write_nocancel", "libc.so.6"), System);
    assert_eq!(of("clock_gettime", "[vdso]"), System);
    assert_eq!(of("read", "/usr/bin/llama-cli"), Other);
    assert_eq!(of("read", "/usr/lib/libcurl.so.4"), Other);
    assert_eq!(of("qsort", "/lib/libc.so.6"), Other);
}

#[test]
fn threads_that_spin_until_others_are_done_wait() {
    for name in [
        "gomp_barrier_wait_end",
        "gomp_team_barrier_wait_end.constprop.0",
        "gomp_team_barrier_wait@@GOMP_4.0",
        "__kmp_wait_template<kmp_flag_64<false, true>, false, true>(kmp_info*, int)",
        "__kmp_hyper_barrier_release",
        "ggml_barrier",
        "ggml_graph_compute_poll_for_work",
        "brickscope_kernels::pool::wait_until",
        "brickscope_kernels::pool::wait_until::<brickscope_kernels::pool::work::{{closure}}>",
        "core::hint::spin_loop",
        "std::thread::yield_now",
        "std::thread::functions::yield_now",
        "rayon_core::sleep::Sleep::sleep",
        "pthread_barrier_wait",
        "[libgomp.so.1.0.0]",
    ] {
        assert_eq!(Class::of_function(name, None, false), Waiting, "{name}");
    }
    let of = |name, module| Class::of_function(name, Some(module), false);
    assert_eq!(of("[unknown]", "/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0"), Waiting);
    assert_eq!(of("[unknown]", "/usr/lib/llvm-18/lib/libomp.so.5"), Waiting);
    assert_eq!(of("[unknown]", "/usr/bin/llama-bench"), Other);
    for name in ["await_token", "app::wait", "waiter", "barrier", "pool::run", "GOMP_parallel"] {
        assert_eq!(Class::of_function(name, None, false), Other, "{name}");
    }
    // Asleep in a call it is the system's.
    assert_eq!(Class::of_function("futex_wait", None, false), System);
}

#[test]
fn the_kernel_of_the_system_is_system_save_where_it_handles_memory() {
    let of = |name| Class::of_function(name, None, true);
    assert_eq!(of("clear_page_erms"), Memory);
    assert_eq!(of("asm_exc_page_fault"), Memory);
    assert_eq!(of("handle_mm_fault"), Memory);
    assert_eq!(of("memcpy_erms"), Memory);
    assert_eq!(of("schedule"), System);
    assert_eq!(of("free"), System);
    assert_eq!(of("read"), System);
    assert_eq!(of("0xffffffff81000000"), System);
    assert_eq!(of(""), System);
}

#[test]
fn classes_are_told_apart_and_black_text_on_them_can_be_read() {
    // Relative luminance and contrast as in WCAG 2.2.
    let luminance = |rgb: [u8; 3]| {
        let [r, g, b] = rgb.map(|value| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    for (at, class) in Class::ALL.into_iter().enumerate() {
        assert_eq!(class as usize, at);
        let contrast = (luminance(class.rgb()) + 0.05) / 0.05;
        assert!(contrast >= 5.0, "{}: {contrast}", class.name());
        for other in &Class::ALL[..at] {
            assert_ne!(class.rgb(), other.rgb());
            assert_ne!(class.color(), other.color());
            assert_ne!(class.name(), other.name());
        }
    }
}
