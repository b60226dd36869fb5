//! Streams are queues of work; here is decided when what is done.
//!
//! Work has a number in its stream. An event is a stream and a number, and waiting is the wish that a stream gets as far as a
//! number. Waits only look back at work that was queued before, so there is always a stream that can go on.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use crate::config::Mode;
use crate::ops::Op;
use crate::state::State;
use crate::status::{INVALID_HANDLE, Outcome, SUCCESS};

/// Keys of the streams that need not be created: the legacy default stream of device 0, and the one of each thread (here:
/// one for all threads).
const LEGACY: usize = 0x100;
const PER_THREAD: usize = 0x200;

pub struct Stream {
    pub device: usize,
    /// Waits for the legacy default stream, which waits for it.
    blocking: bool,
    queue: VecDeque<Op>,
    done: u64,
    /// cuStreamDestroy was called; what is queued is still done, some time.
    destroyed: bool,
    pub priority: i32,
    pub flags: u32,
}

impl Stream {
    /// The number of the last work queued.
    fn issued(&self) -> u64 {
        self.done + self.queue.len() as u64
    }
}

pub struct Event {
    pub device: usize,
    pub timing: bool,
    /// The stream and the number in it that the last record stands for.
    pub point: Option<(usize, u64)>,
    pub time: Option<Instant>,
}

#[derive(Default)]
pub struct Streams {
    streams: BTreeMap<usize, Stream>,
    pub events: HashMap<usize, Event>,
    random: u64,
    /// In random mode: a stream that is slow for a while, and moves only where nothing else can.
    slow: usize,
}

impl Streams {
    pub fn new(seed: u64) -> Streams {
        Streams { random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, ..Streams::default() }
    }

    /// xorshift64*.
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    pub fn add(&mut self, key: usize, device: usize, flags: u32, priority: i32) {
        let stream = Stream {
            device,
            blocking: flags & 1 == 0,
            queue: VecDeque::new(),
            done: 0,
            destroyed: false,
            priority,
            flags,
        };
        self.streams.insert(key, stream);
    }

    pub fn get(&self, key: usize) -> Outcome<&Stream> {
        self.streams.get(&key).filter(|stream| !stream.destroyed).ok_or(INVALID_HANDLE)
    }

    /// The key for a handle of the caller: 0 and 1 are the legacy default stream of the current device, 2 is the thread's.
    pub fn resolve(&mut self, handle: usize, device: Outcome<usize>) -> Outcome<usize> {
        let first = match handle {
            0 | 1 => LEGACY,
            2 => PER_THREAD,
            _ => return self.get(handle).map(|_| handle),
        };
        let device = device?;
        if !self.streams.contains_key(&(first + device)) {
            self.add(first + device, device, 0, 0);
        }
        Ok(first + device)
    }

    pub fn destroy(&mut self, key: usize) -> Outcome {
        self.get(key)?;
        self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?.destroyed = true;
        self.bury(key);
        Ok(())
    }

    /// Forgets a destroyed stream that has nothing left to do.
    fn bury(&mut self, key: usize) {
        if self.streams.get(&key).is_some_and(|stream| stream.destroyed && stream.queue.is_empty()) {
            self.streams.remove(&key);
        }
    }

    /// Forgets the streams and events of a device, as when its context is destroyed.
    pub fn forget_device(&mut self, device: usize) {
        self.streams.retain(|_, stream| stream.device != device);
        self.events.retain(|_, event| event.device != device);
    }

    /// Whether a stream got as far as a number. A stream that is no more has done everything.
    pub fn reached(&self, (key, number): (usize, u64)) -> bool {
        self.streams.get(&key).is_none_or(|stream| stream.done >= number)
    }

    pub fn issued(&self, key: usize) -> u64 {
        self.streams.get(&key).map_or(0, Stream::issued)
    }

    fn of_device(&self, device: Option<usize>) -> Vec<usize> {
        let wanted = |stream: &Stream| device.is_none_or(|device| stream.device == device);
        self.streams.iter().filter(|(_, stream)| wanted(stream)).map(|(&key, _)| key).collect()
    }

    /// What the first work in a stream waits for, if it is not there yet.
    fn obstacle(&self, key: usize) -> Option<(usize, u64)> {
        match self.streams.get(&key)?.queue.front()? {
            Op::Wait { point } if !self.reached(*point) => Some(*point),
            _ => None,
        }
    }

    /// Streams whose first work can be done now.
    fn runnable(&self) -> Vec<usize> {
        let ready = |(key, stream): (&usize, &Stream)| {
            (!stream.queue.is_empty() && self.obstacle(*key).is_none()).then_some(*key)
        };
        self.streams.iter().filter_map(ready).collect()
    }
}

impl State {
    /// Queues work. It gives the number of the work in its stream.
    pub fn push(&mut self, key: usize, op: Op) -> u64 {
        let Some(stream) = self.streams.streams.get(&key) else { return 0 };
        let (device, blocking, legacy) =
            (stream.device, stream.blocking, (LEGACY..PER_THREAD).contains(&key));
        if legacy || blocking {
            // The legacy default stream and every blocking stream of its device wait for each other.
            let others: Vec<(usize, u64)> = self
                .streams
                .streams
                .iter()
                .filter(|(other, stream)| {
                    let partner = if legacy { stream.blocking } else { **other == LEGACY + device };
                    **other != key && stream.device == device && partner && !stream.queue.is_empty()
                })
                .map(|(&other, stream)| (other, stream.issued()))
                .collect();
            for point in others {
                self.enqueue(key, Op::Wait { point });
            }
        }
        let number = self.enqueue(key, op);
        match self.config.mode {
            Mode::Eager => self.finish((key, number)),
            Mode::Lazy => {}
            Mode::Random => {
                // Often nothing, so that queues fill.
                if self.streams.below(4) == 0 {
                    let all = self.streams.of_device(None);
                    self.streams.slow = all[self.streams.below(all.len())];
                }
                for _ in 0..self.streams.below(5).saturating_sub(2) {
                    self.random_step();
                }
            }
        }
        number
    }

    fn enqueue(&mut self, key: usize, op: Op) -> u64 {
        let Some(stream) = self.streams.streams.get_mut(&key) else { return 0 };
        stream.queue.push_back(op);
        stream.issued()
    }

    /// Works until a stream got as far as a number.
    pub fn finish(&mut self, point: (usize, u64)) {
        while !self.streams.reached(point) {
            if self.config.mode == Mode::Random {
                self.random_step();
            } else {
                self.step(point.0);
            }
        }
    }

    pub fn finish_stream(&mut self, key: usize) {
        self.finish((key, self.streams.issued(key)));
    }

    /// Everything on one device, or on all.
    pub fn finish_device(&mut self, device: Option<usize>) {
        for key in self.streams.of_device(device) {
            self.finish_stream(key);
        }
    }

    /// One piece of work towards the end of a stream, or of what it waits for.
    pub fn step(&mut self, key: usize) {
        let mut key = key;
        while let Some((other, _)) = self.streams.obstacle(key) {
            key = other;
        }
        self.run_first(key);
    }

    fn random_step(&mut self) {
        let mut ready = self.streams.runnable();
        if ready.len() > 1 {
            ready.retain(|&key| key != self.streams.slow);
        }
        if !ready.is_empty() {
            let chosen = ready[self.streams.below(ready.len())];
            self.run_first(chosen);
        }
    }

    fn run_first(&mut self, key: usize) {
        let Some(stream) = self.streams.streams.get_mut(&key) else { return };
        let Some(op) = stream.queue.pop_front() else { return };
        let (device, number) = (stream.device, stream.done + 1);
        if let Err(status) = self.run(op, device, (key, number)) {
            self.lose(device, status);
        }
        // The context, and with it the stream, is still there: nothing that runs can destroy it.
        if let Some(stream) = self.streams.streams.get_mut(&key) {
            stream.done = number;
        }
        self.streams.bury(key);
    }

    /// What a synchronising call of a device returns: red zones are looked at first.
    pub fn verdict(&mut self, device: usize) -> Outcome {
        self.check_red_zones("at a synchronisation");
        match self.lost.get(device).copied().unwrap_or(SUCCESS) {
            SUCCESS => Ok(()),
            status => Err(status),
        }
    }
}
