// SPDX-License-Identifier: 0BSD
// An engine like GAP9's NE16: tiles of 3 x 3 pixels, 16 channels in and 32 out at once. It differs in that weights are
// bytes as eb_engine.h has them, not planes of bits, and that windows of any size go tap by tap.
// It reads the job (eb_conv2d, or eb_depthwise with `each`) at the address that starts it. Memory gives it 16 bytes a
// cycle, or a word, and takes nine results.
module Ne16 (
  input        clk, reset, start, each,
  input [31:0] address,
  output       busy
);
  import "DPI-C" function int eb_word(input int address);
  import "DPI-C" function byte eb_byte(input int address);
  import "DPI-C" function void eb_store(input int address, input byte value);

  localparam SIDE = 3, PIXELS = SIDE * SIDE, IN = 16, OUT = 32, WORDS = 25;
  typedef enum logic [2:0] {IDLE, JOB, LOAD, RUN, STORE} state_t;
  state_t state;
  logic by_channel;
  int base, count, oy, ox, k, fy, fx, c;
  int job [WORDS];
  // Words of the job, in the order of the struct.
  wire [31:0] x = job[0], y = job[1], weights = job[2], bias = job[3], multiplier = job[4], exponent = job[5];
  wire [31:0] shift = job[6], added = job[24];
  int pad_value, y_zero, low, high, height, width, channels, out_height, out_width, out_channels;
  int window_height, window_width, stride_y, stride_x, top, left, rest, tap, taps;
  always_comb begin
    {pad_value, y_zero, low, high} = {job[8], job[9], job[10], job[11]};
    {height, width, channels} = {job[12], job[13], job[14]};
    {out_height, out_width, out_channels} = {job[15], job[16], job[17]};
    {window_height, window_width, stride_y, stride_x, top, left} =
      {job[18], job[19], job[20], job[21], job[22], job[23]};
    rest = by_channel ? IN : OUT;  // channels of this tile
    if (out_channels - k < rest) rest = out_channels - k;
    tap = fy * window_width + fx;
    taps = window_height * window_width;
  end

  assign busy = state != IDLE;

  byte pixel [PIXELS][IN];
  int sum [PIXELS][OUT];

  // TFLite's two roundings, or one shift behind an addition; and the clamp.
  function automatic byte result(input int total, input int channel);
    int factor, places, right, shifted, rounded, mask, value;
    longint product;
    factor = eb_word(multiplier + 4 * channel);
    if (added != 0) begin
      product = 64'(signed'(total)) * 64'(signed'(factor)) + 64'(signed'(eb_word(added + 4 * channel)));
      product = (product >>> shift[5:0]) + 64'(signed'(y_zero));
      return 8'(product < 64'(signed'(low)) ? low : product > 64'(signed'(high)) ? high : 32'(product));
    end
    places = 32'(signed'(eb_byte(exponent + channel)));
    right = places < 0 ? -places : 0;
    shifted = places > 0 ? total << places : total;
    rounded = 32'((64'(signed'(shifted)) * 64'(signed'(factor)) + 64'sd1073741824) >>> 31);
    mask = 32'((33'd1 << right) - 33'd1);
    value = (rounded >>> right) + ((rounded & mask) > (mask >>> 1) + 32'(rounded < 0) ? 1 : 0) + y_zero;
    return 8'(value < low ? low : value > high ? high : value);
  endfunction

  always_ff @(posedge clk) begin
    count <= count + 1;
    case (state)
      IDLE: if (start) begin
        {state, by_channel, base, count} <= {JOB, each, address, 32'd0};
        {oy, ox, k, fy, fx, c} <= '0;
      end
      JOB: begin
        job[count] <= eb_word(base + 4 * count);
        if (count == WORDS - 1) begin
          for (int p = 0; p < PIXELS; p++) for (int i = 0; i < OUT; i++) sum[p][i] <= 0;
          {state, count} <= {LOAD, 32'd0};
        end
      end
      LOAD: begin // a pixel a cycle
        int iy, ix, first;
        iy = (oy + count / SIDE) * stride_y - top + fy;
        ix = (ox + count % SIDE) * stride_x - left + fx;
        first = by_channel ? k : c;
        for (int i = 0; i < IN; i++)
          pixel[count][i] <= first + i >= channels ? 8'd0
            : iy < 0 || iy >= height || ix < 0 || ix >= width ? pad_value[7:0]
            : eb_byte(x + (iy * width + ix) * channels + first + i);
        if (count == PIXELS - 1) {state, count} <= {RUN, 32'd0};
      end
      RUN: begin // all pixels: a channel out a cycle of 16 channels in, or 16 channels each by itself
        for (int p = 0; p < PIXELS; p++) begin
          int total;
          total = sum[p][count];
          for (int i = 0; i < IN; i++)
            if (by_channel) begin
              if (i < rest) sum[p][i] <= sum[p][i] + pixel[p][i] * eb_byte(weights + (k + i) * taps + tap);
            end else if (c + i < channels)
              total += pixel[p][i] * eb_byte(weights + ((k + count) * taps + tap) * channels + c + i);
          if (!by_channel) sum[p][count] <= total;
        end
        if (by_channel || count == rest - 1) begin
          {state, count} <= {LOAD, 32'd0};
          if (!by_channel && c + IN < channels) c <= c + IN;
          else begin
            c <= 0;
            if (fx + 1 < window_width) fx <= fx + 1;
            else begin
              {fx, fy} <= {32'd0, fy + 1};
              if (fy + 1 == window_height) state <= STORE;
            end
          end
        end
      end
      STORE: begin // a channel of all pixels a cycle
        for (int p = 0; p < PIXELS; p++)
          if (oy + p / SIDE < out_height && ox + p % SIDE < out_width)
            eb_store(y + ((oy + p / SIDE) * out_width + ox + p % SIDE) * out_channels + k + count,
                     result(sum[p][count] + eb_word(bias + 4 * (k + count)), k + count));
        if (count == rest - 1) begin
          for (int p = 0; p < PIXELS; p++) for (int i = 0; i < OUT; i++) sum[p][i] <= 0;
          {state, count, fy} <= {LOAD, 32'd0, 32'd0};
          if (k + rest < out_channels) k <= k + rest;
          else begin
            k <= 0;
            if (ox + SIDE < out_width) ox <= ox + SIDE;
            else begin
              {ox, oy} <= {32'd0, oy + SIDE};
              if (oy + SIDE >= out_height) state <= IDLE;
            end
          end
        end
      end
      default: state <= IDLE;
    endcase
    if (reset) state <= IDLE;
  end
endmodule
