//! How the kernels of an operation are declared: once, in the operation's own file.

/// Declares a trait of kernels, which a [`Backend`](crate::Backend) implements. After each one follows what becomes of
/// it on a device that computes nothing ([`dry`](crate::dry)): how much work it would be, and what it would take for
/// the time of the call. That and the forwarding of a device that is timed are made from the same declaration.
macro_rules! kernels {
    (
        $(#[$about:meta])*
        pub trait $kernels:ident {
            $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty {
                |$dry:ident| $($work:tt)*
            })*
        }
    ) => {
        $(#[$about])*
        pub trait $kernels {
            $($(#[$doc])* fn $name(&self, $($arg: $type),*) -> $result;)*
        }

        impl $kernels for $crate::timed::Timed {
            $(fn $name(&self, $($arg: $type),*) -> $result {
                self.time(stringify!($name), || self.inner.$name($($arg),*))
            })*
        }

        #[allow(unused_variables)] // Most kernels are as much work whatever the numbers are.
        impl $kernels for $crate::dry::Dry {
            $(fn $name(&self, $($arg: $type),*) -> $result {
                let $dry = self;
                $($work)*
            })*
        }
    };
}
pub(crate) use kernels;

/// Declares the files of operations, and a device that runs all of them.
macro_rules! backend {
    ($($file:ident::$kernels:ident,)*) => {
        $(pub mod $file;)*

        /// A device that runs every operation.
        pub trait Backend:
            $crate::backend::Memory
            + $crate::backend::Floor
            + $crate::optim::OptimizerKernels
            + linear::LinearKernels
            $(+ $file::$kernels)*
        {
        }

        impl<T> Backend for T where
            T: $crate::backend::Memory
                + $crate::backend::Floor
                + $crate::optim::OptimizerKernels
                + linear::LinearKernels
                $(+ $file::$kernels)*
        {
        }
    };
}
pub(crate) use backend;

/// Declares what a device has of each operation: a file of the same name.
macro_rules! halves {
    ($($file:ident::$kernels:ident,)*) => {
        $(mod $file;)*
    };
}
pub(crate) use halves;
