//! What is trained.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use crate::error::Result;
use crate::matrix::Matrix;

/// A trainable matrix: its value and the gradient collected for it.
#[derive(Debug)]
pub struct Parameter {
    name: String,
    /// As a file has it.
    dims: Vec<usize>,
    value: RefCell<Matrix>,
    grad: RefCell<Option<Matrix>>,
    has_effect: Cell<bool>,
    decays: Cell<bool>,
    /// Columns that all ranks have, where those after them are of one rank alone.
    shared_columns: Cell<Option<usize>>,
}

impl Parameter {
    /// A parameter with a PyTorch-style name.
    pub fn new(name: impl Into<String>, value: Matrix) -> Rc<Self> {
        let dims = vec![value.rows(), value.cols()];
        Self::shaped(name, dims, value)
    }

    /// A parameter that files store with other dimensions than those of its matrix: a bias has one, attention vectors
    /// have three.
    pub fn shaped(name: impl Into<String>, dims: Vec<usize>, value: Matrix) -> Rc<Self> {
        let (value, grad) = (RefCell::new(value), RefCell::new(None));
        let (has_effect, decays, shared_columns) = (Cell::new(true), Cell::new(true), Cell::new(None));
        Rc::new(Self { name: name.into(), dims, value, grad, has_effect, decays, shared_columns })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions that PyTorch's tensor of this name has; as many elements as the matrix, in the same order.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Says that the loss does not depend on it, such as on a bias that a batch norm subtracts again. From then on its
    /// gradient is exactly zero. Computed, it would be rounding, of which Adam makes steps as large as any other: they
    /// would differ from strategy to strategy, and with them what running moments say of the bias.
    pub fn set_without_effect(&self) {
        self.has_effect.set(false);
    }

    /// Says that weight decay leaves it alone.
    pub fn set_without_decay(&self) {
        self.decays.set(false);
    }

    /// Whether weight decay acts on it.
    pub(crate) fn decays(&self) -> bool {
        self.decays.get()
    }

    /// Says that all ranks have its first `count` columns, and each has others after them.
    pub fn set_shared_columns(&self, count: usize) {
        self.shared_columns.set(Some(count));
    }

    /// How many columns all ranks have; nothing where these are all columns.
    pub fn shared_columns(&self) -> Option<usize> {
        self.shared_columns.get()
    }

    /// Its value; cheap, shares memory.
    pub fn value(&self) -> Matrix {
        self.value.borrow().clone()
    }

    /// The gradient collected since it was last taken.
    pub fn grad(&self) -> Option<Matrix> {
        self.grad.borrow().clone()
    }

    /// Takes the gradient away, for the optimizer or a reduction over ranks.
    pub fn take_grad(&self) -> Option<Matrix> {
        self.grad.borrow_mut().take()
    }

    /// Puts a gradient back, e.g. after it was summed over ranks.
    pub fn set_grad(&self, grad: Option<Matrix>) {
        *self.grad.borrow_mut() = grad;
    }

    /// Whether the loss depends on it.
    pub(crate) fn has_effect(&self) -> bool {
        self.has_effect.get()
    }

    /// The gradient, to be added to.
    pub(crate) fn grad_mut(&self) -> RefMut<'_, Option<Matrix>> {
        self.grad.borrow_mut()
    }

    /// The value for an optimizer, which changes many at once.
    pub(crate) fn value_mut(&self) -> RefMut<'_, Matrix> {
        self.value.borrow_mut()
    }

    /// Changes the value. Fails if the change fails; the value must not be shared with a tape at this time.
    pub fn update(&self, change: impl FnOnce(&mut Matrix) -> Result<()>) -> Result<()> {
        change(&mut self.value.borrow_mut())
    }
}
