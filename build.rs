//! Link settings of the shared library: its soname, and that it stays loaded once loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liboz2blas.so.0");
    // Worker threads and the exit hook outlive a dlclose: the code they run must not be unmapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
