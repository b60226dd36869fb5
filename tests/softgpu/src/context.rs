//! Primary contexts, and the stack of current contexts that every thread has.

use std::cell::RefCell;

use crate::status::{CONTEXT_IS_DESTROYED, INVALID_CONTEXT, Outcome};

/// The handle of the primary context of device 0. The handle says the device.
const FIRST: usize = 0xc0de_0000;
const STEP: usize = 0x100;

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Works on the stack of the calling thread; on an empty one while the thread ends.
fn stack<T>(work: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    let mut work = Some(work);
    let done = STACK.try_with(|stack| work.take().map(|work| work(&mut stack.borrow_mut())));
    match (done, work) {
        (Ok(Some(value)), _) => value,
        (_, Some(work)) => work(&mut Vec::new()),
        _ => unreachable!("work was taken but not done"),
    }
}

pub fn handle(device: usize) -> usize {
    FIRST + device * STEP
}

pub fn device(handle: usize) -> Option<usize> {
    let offset = handle.checked_sub(FIRST)?;
    offset.is_multiple_of(STEP).then_some(offset / STEP)
}

/// The current context, 0 for none.
pub fn current() -> usize {
    stack(|stack| stack.last().copied().unwrap_or(0))
}

/// How often the primary context of each device is retained.
#[derive(Default)]
pub struct Contexts {
    pub retained: Vec<u32>,
}

impl Contexts {
    pub fn active(&self, device: usize) -> bool {
        self.retained.get(device).is_some_and(|&count| count > 0)
    }

    fn valid(&self, handle: usize) -> Outcome {
        let device = device(handle).filter(|&device| device < self.retained.len()).ok_or(INVALID_CONTEXT)?;
        if self.active(device) { Ok(()) } else { Err(INVALID_CONTEXT) }
    }

    pub fn push(&self, handle: usize) -> Outcome {
        self.valid(handle)?;
        stack(|stack| stack.push(handle));
        Ok(())
    }

    pub fn pop(&self) -> Outcome<usize> {
        stack(Vec::pop).ok_or(INVALID_CONTEXT)
    }

    /// Puts a context in the place of the current one; with 0, takes the current one away.
    pub fn set(&self, handle: usize) -> Outcome {
        if handle != 0 {
            self.valid(handle)?;
        }
        stack(|stack| {
            stack.pop();
            if handle != 0 {
                stack.push(handle);
            }
        });
        Ok(())
    }

    /// The device of the current context.
    pub fn current_device(&self) -> Outcome<usize> {
        let device = device(current()).ok_or(INVALID_CONTEXT)?;
        if self.active(device) { Ok(device) } else { Err(CONTEXT_IS_DESTROYED) }
    }
}
